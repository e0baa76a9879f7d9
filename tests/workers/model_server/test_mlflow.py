"""MLflow models in a replica: what MLflow's own scoring server and client make of them."""

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import requests
from sklearn.linear_model import LinearRegression

from slipway.schemas.serving import BatchingMode, ModelFormat
from tests.workers.serving import KEY, Plane, plane
from workers.model_server.engine import Engine
from workers.serving.wire import Contract, RequestFrame

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    import mlflow.sklearn
    from mlflow.models import infer_signature
    from mlflow.pyfunc.scoring_server import invocations
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    from workers.model_server.formats import mlflow_model

TABLE = pd.DataFrame({"age": [30.0, 40.0, 50.0], "rooms": [1, 2, 3]})
PRICES = [100.0, 200.0, 300.0]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scikit-learn model with a signature of columns."""
    folder = tmp_path_factory.mktemp("models") / "prices"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearRegression().fit(TABLE, PRICES)
        signature = infer_signature(TABLE, np.array(PRICES))
        mlflow.sklearn.save_model(model, folder, signature=signature, pip_requirements=[])
    return folder


@pytest.fixture(scope="module")
def loaded(model_dir: Path) -> mlflow_model.MlflowModel:
    """The model, loaded here to look at it closely."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mlflow_model.load(model_dir, None)


@pytest.fixture
def engine(loaded: mlflow_model.MlflowModel) -> Engine:
    """What predicts with it, which is row-wise."""
    return Engine(loaded, name="prices", version="1", max_rows=64, batching=BatchingMode.ROWS)


@pytest.fixture(scope="module")
def served(model_dir: Path) -> Iterator[Plane]:
    """The model behind a gateway."""
    with plane() as dataplane:
        replica = dataplane.replica(
            format=ModelFormat.MLFLOW, model_dir=str(model_dir), entry=None, model="prices"
        )
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


BODIES = [
    {"dataframe_split": {"columns": ["age", "rooms"], "data": [[30.0, 1], [40, 2]]}},
    {"dataframe_split": {"columns": ["rooms", "age"], "index": [7], "data": [[3, 50.0]]}},
    {"dataframe_records": [{"age": 30.0, "rooms": 1}, {"rooms": 2, "age": 40.0}]},
    {"instances": [{"age": 30.0, "rooms": 1}]},
    {"inputs": {"age": [30.0, 40.0], "rooms": [1, 2]}},
    {"dataframe_records": [{"age": 30.0, "rooms": 1, "not asked for": "x"}]},
]


@pytest.mark.parametrize("body", BODIES)
def test_a_request_means_what_it_means_to_mlflow(
    engine: Engine, model_dir: Path, body: dict[str, Any]
) -> None:
    stock = mlflow.pyfunc.load_model(str(model_dir))
    text = json.dumps(body)
    theirs: Any = invocations(  # type: ignore[no-untyped-call]
        text, "application/json", stock, stock.metadata.get_input_schema()
    )
    ours = engine.answer([RequestFrame(1, Contract.SCORING, 0, text.encode())])[0]
    assert (ours.status, json.loads(ours.body)) == (200, json.loads(theirs.response))


def test_requests_that_wait_together_are_predicted_together(
    engine: Engine, loaded: mlflow_model.MlflowModel
) -> None:
    calls = []
    predict = loaded.predict

    def counted(inputs: Any, params: dict[str, Any]) -> Any:
        calls.append(len(inputs))
        return predict(inputs, params)

    loaded.predict = counted  # type: ignore[method-assign]
    try:
        frames = [
            RequestFrame(at, Contract.SCORING, 0, json.dumps(body).encode())
            for at, body in enumerate(BODIES[:3])
        ]
        answers = engine.answer(frames)
    finally:
        loaded.predict = predict  # type: ignore[method-assign]
    assert [answer.number for answer in answers] == [0, 1, 2]
    assert [len(json.loads(answer.body)["predictions"]) for answer in answers] == [2, 1, 2]
    assert sum(calls) == 5
    assert len(calls) < 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"dataframe_records": [{"age": 30.0}]}, "column 'rooms' is missing; INT64 was expected"),
        (
            {"dataframe_records": [{"age": "old", "rooms": 1}]},
            "column 'age' holds 'old' in row 0; FP64 was expected",
        ),
        (
            {"inputs": {"age": [1.0, 2.0], "rooms": [1, 2.5]}},
            "column 'rooms' holds '2.5' in row 1; INT64 was expected",
        ),
    ],
)
def test_a_violation_names_the_column_and_what_was_expected(
    engine: Engine, body: dict[str, Any], message: str
) -> None:
    answer = engine.answer([RequestFrame(1, Contract.SCORING, 0, json.dumps(body).encode())])[0]
    assert answer.status == 400
    assert message in json.loads(answer.body)["detail"]


def test_columns_come_as_tensors_too(engine: Engine) -> None:
    body = {
        "inputs": [
            {"name": "age", "datatype": "FP64", "shape": [2], "data": [30, 40]},
            {"name": "rooms", "datatype": "INT64", "shape": [2, 1], "data": [[1], [2]]},
        ]
    }
    answer = engine.answer([RequestFrame(1, Contract.INFER, 0, json.dumps(body).encode())])[0]
    output = json.loads(answer.body)["outputs"][0]
    assert output["data"] == pytest.approx(PRICES[:2])


@pytest.mark.thorough
def test_the_client_of_mlflow_is_served(served: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    # It knows no keys; a key rides on its calls, as a proxy would add it.
    send = requests.Session.send

    def with_key(session: requests.Session, request: requests.PreparedRequest, **how: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {KEY}"
        return send(session, request, **how)

    monkeypatch.setattr(requests.Session, "send", with_key)
    client: Any = ScoringServerClient("127.0.0.1", served.port)  # type: ignore[no-untyped-call]
    client.ping()
    predictions = client.invoke(TABLE).get_predictions()
    assert predictions.to_numpy().ravel().tolist() == pytest.approx(PRICES)


def test_a_keras_model_is_loaded_with_the_backend_that_trained_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    # Keras reads the variable once, when it is imported.
    (code / "backend_of_keras.py").write_text(
        "import os\n"
        "BACKEND = os.environ.get('KERAS_BACKEND')\n"
        "class Answer:\n"
        "    def predict(self, data, params=None):\n"
        "        return [BACKEND] * len(data)\n"
        "def _load_pyfunc(path):\n"
        "    return Answer()\n"
    )
    model = mlflow.models.Model(signature=infer_signature(np.zeros((1, 2)), np.array(["jax"])))
    model.add_flavor("keras", keras_version="3.15.1", keras_backend="jax")
    mlflow.pyfunc.save_model(
        tmp_path / "model",
        loader_module="backend_of_keras",
        code_paths=[str(code / "backend_of_keras.py")],
        mlflow_model=model,
        pip_requirements=[],
    )
    sys.modules.pop("backend_of_keras", None)
    # The test ends with the environment it began with.
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.delenv("KERAS_BACKEND")
    loaded = mlflow_model.load(tmp_path / "model", None)
    assert loaded.predict(np.zeros((2, 2)), {}) == ["jax", "jax"]
