"""Datasets predicted by jobs on a real node, with the answers that an endpoint gives."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slipway as sdk
from slipway.errors import Conflict, InvalidInput
from slipway.schemas.batch_predictions import BatchPredictionOut
from tests.integration.serving.living import Endpoints, running_endpoints
from tests.integration.training.test_pipelines import _control_of
from tests.processes import children_of, command_of, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
STARTS_WITHIN_S = 300.0
MLMODEL = """flavors:
  python_function:
    code: code
    data: facts.json
    loader_module: prices_{name}
model_uuid: {name}
signature:
  inputs: '[{{"type": "double", "name": "price", "required": true}},
    {{"type": "long", "name": "count", "required": true}},
    {{"type": "string", "name": "shop", "required": false}}]'
  outputs: '[{{"type": "double", "required": true}}]'
  params: null
"""
CODE = """
import json, os, signal, time
from slipway import job
class Model:
    def __init__(self, facts):
        self.facts = facts
        self.began = time.monotonic()
    def predict(self, inputs, params=None):
        time.sleep(self.facts["pause_s"])
        dies = self.facts["dies_after_s"] and job.current().attempt == 1
        if dies and time.monotonic() - self.began > self.facts["dies_after_s"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if (inputs["price"] < 0).any():
            raise ValueError("a price is negative")
        shop = inputs["shop"].fillna("") if "shop" in inputs else ""
        return (inputs["price"] * inputs["count"] + (shop == "corner") * 1.0).to_numpy()
def _load_pyfunc(path):
    with open(path) as file:
        return Model(json.load(file))
"""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    with running_endpoints(tmp_path_factory.mktemp("batch")) as lab:
        yield lab


@pytest.fixture(scope="module")
def client(endpoints: Endpoints) -> Iterator[sdk.Client]:
    with sdk.Client(endpoints.running.url, endpoints.running.tokens["root"]) as made:
        yield made


def _register(
    endpoints: Endpoints, *, pause_s: float = 0.0, dies_after_s: float = 0, requirements: str = ""
) -> int:
    """Register a version of `prices`: price times count, and one more in the corner shop.

    It kills its process so long after it was loaded, in the first attempt of a job.
    """
    folder = f"workspaces/{endpoints.project}/models/{uuid.uuid4().hex}"
    name = uuid.uuid4().hex
    root = endpoints.running.installation.data_dir / "artifacts" / folder
    files = {
        "MLmodel": MLMODEL.format(name=name),
        "facts.json": json.dumps({"pause_s": pause_s, "dies_after_s": dies_after_s}),
        f"code/prices_{name}.py": CODE,
        "requirements.txt": requirements,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    body = {"source": f"mlflow-artifacts:/{folder}"}
    return int(endpoints.call("POST", "models/prices/versions", body)["version"])


def _push(client: sdk.Client, folder: Path, name: str, rows: list[str]) -> str:
    file = folder / "sales.csv"
    file.write_text("\n".join(["id,price,count,shop", *rows]) + "\n")
    version = client.datasets.push(name, file, project="vision")
    return f"{name}:{version.number}"


def _log(client: sdk.Client, job: str) -> str:
    return b"".join(client.jobs.logs(job, project="vision")).decode()


def _ended(client: sdk.Client, started: BatchPredictionOut) -> BatchPredictionOut:
    return client.batch_predictions.wait(started.id, project="vision", timeout_s=STARTS_WITHIN_S)


def _rows(client: sdk.Client, reference: str | None) -> list[dict[str, Any]]:
    assert reference is not None
    data = sdk.dataset(reference, project="vision", client=client)
    rows: list[dict[str, Any]] = data.arrow().to_pylist()
    return rows


def test_a_row_gets_the_prediction_that_an_endpoint_gives(
    endpoints: Endpoints, client: sdk.Client, tmp_path: Path
) -> None:
    number = _register(endpoints)
    rows = [f"r{n},{n / 7},{n},{'corner' if n % 3 else ''}" for n in range(700)]
    data = _push(client, tmp_path, "sales", rows)
    version = sdk.Model("prices", project="vision", client=client).version(number)
    ended = version.predict(data, output="sales-predictions", keep=["id"])
    assert ended.state == "succeeded", _log(client, ended.id)
    assert (ended.rows, ended.failed_rows) == (700, 0)
    assert ended.output_version == "sales-predictions:1"
    assert ended.cost_nano_usd > 0
    assert (ended.rows_per_second or 0) > 0
    # Nothing is recorded with the model: the rows themselves prove that it may take many at once.
    assert (ended.rows_per_call or 0) > 1, ended.batching
    predicted = _rows(client, ended.output_version)
    assert [row["id"] for row in predicted] == [f"r{n}" for n in range(700)]
    assert list(predicted[0]) == ["id", "prediction"]
    endpoints.create("prices", number, model="prices")
    endpoints.state("prices", "serving", within_s=STARTS_WITHIN_S)
    frame = sdk.dataset(data, project="vision", client=client).pandas()
    key = endpoints.keys["prices"]
    url = f"{str(endpoints.gateway.base_url).rstrip('/')}/v1/prices"
    with sdk.Endpoint("prices", key=key, url=url) as endpoint:
        answered = endpoint.predict(frame[["price", "count", "shop"]])
    assert [row["prediction"] for row in predicted] == list(answered)
    graph = endpoints.call("GET", f"models/prices/versions/{number}/lineage")
    kinds = {node["key"]: node["label"] for node in graph["nodes"]}
    assert kinds[f"batch_prediction:{ended.id}"] == "sales-predictions:1"
    sources = [edge["source"] for edge in graph["edges"] if ended.id in edge["target"]]
    assert {source.partition(":")[0] for source in sources} == {"version", "dataset"}
    again = version.predict(data, output="sales-predictions", keep=["id"])
    assert again.output_version == "sales-predictions:1", "equal predictions make no new version"


def test_a_bad_row_stops_the_job_or_is_marked(
    endpoints: Endpoints, client: sdk.Client, tmp_path: Path
) -> None:
    number = _register(endpoints)
    rows = [f"r{n},{-1 if n in (3, 80) else n},{n},corner" for n in range(100)]
    data = _push(client, tmp_path, "bad-sales", rows)
    version = sdk.Model("prices", project="vision", client=client).version(number)
    with pytest.raises(Conflict, match=r"Row 4 of sales\.csv .* a price is negative"):
        version.predict(data, output="marked")
    assert client.datasets.get("marked", project="vision").latest is None
    ended = version.predict(data, output="marked", on_error="skip")
    assert (ended.rows, ended.failed_rows) == (100, 2)
    assert ended.first_failure.startswith("Row 4 of sales.csv")
    predicted = _rows(client, ended.output_version)
    assert len(predicted) == 100
    assert list(predicted[0]) == ["id", "price", "count", "shop", "prediction", "prediction_error"]
    marked = {row["id"]: row["prediction_error"] for row in predicted if row["prediction_error"]}
    assert list(marked) == ["r3", "r80"]
    assert "a price is negative" in marked["r3"]
    assert predicted[3]["prediction"] is None
    assert predicted[5]["prediction"] == 26.0


def test_a_killed_agent_or_worker_leaves_one_version(
    endpoints: Endpoints, client: sdk.Client, tmp_path: Path
) -> None:
    number = _register(endpoints, pause_s=0.1, dies_after_s=15)
    endpoints.call("PUT", f"models/prices/versions/{number}/batching", {"mode": "off"})
    rows = [f"r{n},{n},{n},corner" for n in range(500)]
    data = _push(client, tmp_path, "long-sales", rows)
    started = client.batch_predictions.create(
        "prices", version=number, project="vision", data=data, output="once"
    )
    wait_for(
        lambda: client.batch_predictions.get(started.id, project="vision").step,
        "rows that are predicted",
        within_s=STARTS_WITHIN_S,
    )
    os.kill(_control_of(endpoints.running), signal.SIGKILL)
    children = children_of(endpoints.running.program.pid)
    [agent] = [pid for pid in children if "workers.node_agent" in command_of(pid)]
    os.kill(agent, signal.SIGKILL)
    ended = _ended(client, started)
    assert ended.state == "succeeded", _log(client, started.id)
    assert client.jobs.get(started.id, project="vision").workload.attempt > 1
    assert ended.output_version == "once:1"
    assert ended.rows_per_call == 1, "its author has declared that"
    assert len(_rows(client, "once:1")) == 500
    assert len(list(client.datasets.versions("once", project="vision"))) == 1


def test_packages_that_cannot_be_installed_fail_with_the_reason(
    endpoints: Endpoints, client: sdk.Client, tmp_path: Path
) -> None:
    number = _register(endpoints, requirements="no-such-package-of-slipway==1.0\n")
    data = _push(client, tmp_path, "few-sales", ["r1,1,1,corner"])
    started = client.batch_predictions.create(
        "prices", version=number, project="vision", data=data, output="never"
    )
    ended = _ended(client, started)
    assert ended.state == "failed"
    assert "no-such-package-of-slipway" in f"{ended.explanation} {ended.next_step}"


def test_columns_that_do_not_fit_are_refused_before_anything_is_queued(
    endpoints: Endpoints, client: sdk.Client, tmp_path: Path
) -> None:
    number = _register(endpoints)
    file = tmp_path / "other.csv"
    file.write_text("price,shop\nmany,corner\n")
    client.datasets.push("others", file, project="vision")
    with pytest.raises(InvalidInput, match=r"lack the column count; price is string") as caught:
        client.batch_predictions.create(
            "prices", version=number, project="vision", data="others", output="never"
        )
    assert (caught.value.code, caught.value.field) == ("signature_mismatch", "data")
    assert caught.value.next_step
