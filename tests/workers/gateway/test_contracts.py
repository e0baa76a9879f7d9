"""Every wire contract on one endpoint, asked by the clients people use where there are any."""

import json
import struct
from typing import Any

import botocore.session
import numpy as np
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.workers.serving import KEY, Plane

ROWS: list[list[float]] = [[1, 2, 3, 4], [0.5, 0, 0, 0]]
EXPECTED = [[20.0, 20.0], [1.0, 1.0]]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"inputs": ROWS}, id="inputs"),
        pytest.param({"inputs": {"x": ROWS}}, id="inputs by name"),
        pytest.param({"instances": ROWS}, id="instances"),
        pytest.param({"instances": [{"x": row} for row in ROWS]}, id="instances by name"),
        pytest.param({"dataframe_split": {"columns": list("abcd"), "data": ROWS}}, id="split"),
        pytest.param(
            {"dataframe_records": [dict(zip("abcd", row, strict=True)) for row in ROWS]},
            id="records",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/v1/digits/predict", "/v1/digits/invocations", "/invocations"])
def test_every_form_of_scoring_is_understood(
    served: Plane, path: str, body: dict[str, Any]
) -> None:
    answer = served.call("POST", path, json.dumps(body).encode())
    assert (answer.status, answer.json()) == (200, {"predictions": EXPECTED})
    assert answer.headers["x-slipway-prediction-id"].startswith("prd_")
    assert answer.headers["x-slipway-model-version"] == "1"


@pytest.mark.thorough
def test_csv_is_understood_too(served: Plane) -> None:
    answer = served.call(
        "POST", "/invocations", b"a,b,c,d\n1,2,3,4\n", headers={"Content-Type": "text/csv"}
    )
    assert answer.json() == {"predictions": [[20.0, 20.0]]}


def test_the_client_of_sagemaker_is_served(served: Plane) -> None:
    # What boto3.client gives out is this one.
    client = botocore.session.get_session().create_client(
        "sagemaker-runtime",
        endpoint_url=f"http://127.0.0.1:{served.port}",
        region_name="eu-central-1",
        aws_access_key_id=KEY,
        aws_secret_access_key="not used: the key is the access key id",
        config=Config(retries={"max_attempts": 1}),
    )
    answer = client.invoke_endpoint(
        EndpointName="digits",
        ContentType="application/json",
        Body=json.dumps({"instances": ROWS}),
    )
    assert json.loads(answer["Body"].read()) == {"predictions": EXPECTED}
    assert answer["InvokedProductionVariant"] == "rev-1"
    assert answer["ContentType"] == "application/json"
    with pytest.raises(ClientError, match="There is no endpoint 'other'"):
        client.invoke_endpoint(EndpointName="other", Body=b"{}")


def test_tensors_are_inferred_as_json(served: Plane) -> None:
    body = {
        "id": "my request",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": ROWS}],
    }
    answer = served.call("POST", "/v2/models/digits/infer", json.dumps(body).encode())
    assert answer.json() == {
        "id": "my request",
        "model_name": "digits",
        "model_version": "1",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [20.0, 20.0, 1.0, 1.0]}
        ],
    }


def test_tensors_are_inferred_as_bytes(served: Plane) -> None:
    raw = np.array(ROWS, "<f4").tobytes()
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [2, 4],
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    answer = served.call(
        "POST",
        "/v2/models/digits/versions/1/infer",
        head + raw,
        headers={
            "Inference-Header-Content-Length": str(len(head)),
            "Content-Type": "application/octet-stream",
        },
    )
    assert answer.status == 200, answer.body
    cut = int(answer.headers["inference-header-content-length"])
    assert json.loads(answer.body[:cut])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert struct.unpack("<4f", answer.body[cut:]) == (20.0, 20.0, 1.0, 1.0)


def test_metadata_says_what_the_model_takes(served: Plane) -> None:
    model = served.get("/v2/models/digits").json()
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert served.get("/v2/models/digits/ready").json() == {"name": "digits", "ready": True}
    assert served.get("/v2/health/live", key=None).status == 200
    assert served.get("/v2/health/ready", key=None).status == 200
    assert served.get("/v1/digits/ping").status == 200
    assert served.get("/v2/models/digits/versions/9").status == 404


def test_openapi_is_made_from_the_signature(served: Plane) -> None:
    described = served.get("/v1/digits/openapi.json").json()
    schema = described["components"]["schemas"]["Request"]["properties"]["inputs"]["anyOf"]
    assert schema[1] == {
        "type": "array",
        "items": {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
    }
    assert "/v1/digits/predict" in described["paths"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b'{"inputs": [[1, 2, 3, "4"]]}',
            "Input 'x' holds '4' in row 0 (element 3); FP32 was expected.",
        ),
        (b'{"inputs": [[1, 2, 3, true]]}', "Input 'x' holds True"),
        (b'{"inputs": [[1, 2, 3]]}', "Input 'x' has the shape [1, 3]; [-1, 4] was expected."),
        (b'{"inputs": [[1, 2, 3, 4], [1]]}', "Input 'x' has rows of different lengths"),
        (b'{"inputs": {"z": [1]}}', "Input 'x' is missing; FP32 of the shape [-1, 4] was expected"),
        (b'{"inputs": [[1, 2, 3, NaN]]}', "NaN or Infinity, which JSON does not support"),
        (b"[1]", "The body is not a JSON object."),
        (b"{}", "The body has nothing."),
        (b'{"inputs": [[1]], "instances": [[1]]}', "The body has 'inputs', 'instances'."),
        (b'{"inputs": ' + b"[" * 100_000, "The body is not JSON"),
        (b"\xff\xfe", "The body is not JSON"),
        (b'{"inputs": [[1, 2, 3, 4]], "params": {"t": 1}}', "Unknown param 't'."),
    ],
)
def test_what_does_not_fit_is_named(served: Plane, body: bytes, message: str) -> None:
    answer = served.call("POST", "/v1/digits/predict", body)
    problem = answer.json()
    assert answer.status == 400
    assert message in problem["detail"]
    # Clients of other contracts find it where they look.
    assert problem["error"] == problem["message"] == problem["detail"]


def test_a_missing_number_is_sent_and_answered_as_null(served: Plane) -> None:
    assert served.predict([[1, 2, 3, None]]).json() == {"predictions": [[None, None]]}
    assert served.predict([]).json() == {"predictions": []}


@pytest.mark.parametrize(
    "change", [{"datatype": "FP99"}, {"shape": [2]}, {"shape": [-1]}, {"name": 1}]
)
def test_a_malformed_tensor_is_refused(served: Plane, change: dict[str, Any]) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]} | change
    answer = served.call(
        "POST", "/v2/models/digits/infer", json.dumps({"inputs": [tensor]}).encode()
    )
    assert answer.status == 400
    assert answer.json()["error"]


def test_a_form_as_curl_sends_it_is_refused_with_the_way_that_works(served: Plane) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = served.call("POST", "/v1/digits/predict", b'{"inputs": []}', headers=headers)
    assert answer.status == 415
    assert "is application/x-www-form-urlencoded; it must be" in answer.json()["detail"]
    assert "-H 'Content-Type: application/json'" in answer.json()["next_step"]


def test_compressed_and_unknown_bodies_are_refused(served: Plane) -> None:
    for headers in ({"Content-Encoding": "gzip"}, {"Content-Type": "application/x-python-pickle"}):
        answer = served.call("POST", "/v1/digits/predict", b"{}", headers=headers)
        assert answer.status == 415
