"""Requests are merged only for models that are proved row-wise."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.schemas.serving import (
    BatchingMode,
    BatchingReport,
    BatchingVerdict,
    GoldenPrediction,
    ModelFormat,
)
from tests.turns import thorough_after
from tests.workers.model_server.hostile_models import (
    CHANGING,
    CROSS_ROW,
    body_of,
    request,
    save_model,
)
from tests.workers.model_server.test_formats import Counting, spec, stored, torchscript
from tests.workers.serving import Plane, linear_model, plane
from workers.model_server.batching import prove, report_of
from workers.model_server.engine import Engine
from workers.model_server.formats import mlflow_model, open_model

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
_HEADERS = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes long enough for requests to wait for each other."""
    return save_model(tmp_path_factory.mktemp("hostile") / "slow", pause_s=0.005)


@pytest.fixture(scope="module")
def served(slow_model: Path) -> Iterator[Plane]:
    """It, behind a gateway, with nothing known of it."""
    with plane() as dataplane:
        replica = dataplane.replica(
            format=ModelFormat.MLFLOW, model_dir=str(slow_model), entry=None, model="hostile"
        )
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


def _ask(served: Plane, body: bytes) -> Any:
    answer = served.call("POST", "/v1/digits/predict", body, headers=_HEADERS)
    assert answer.status == 200, answer.body
    return answer.json()["predictions"]


def _all_equal_alone(served: Plane, *, clients: int, requests: int) -> None:
    """Ask about random rows at once, and compare each answer with that of the rows alone."""
    chance = random.Random(clients)  # noqa: S311
    bodies = [
        body_of(kind, [round(chance.uniform(-9, 9), 3) for _ in range(chance.randint(2, 4))])
        for kind in (chance.choice(CROSS_ROW) for _ in range(requests))
    ]
    alone = [_ask(served, body) for body in bodies]
    with ThreadPoolExecutor(clients) as pool:
        together = list(pool.map(lambda body: _ask(served, body), bodies))
    wrong = [
        (json.loads(body)["dataframe_split"]["data"], before, now)
        for body, before, now in zip(bodies, alone, together, strict=True)
        if before != now
    ]
    assert not wrong, f"{len(wrong)} of {requests} answers are wrong, such as {wrong[0]}"


@pytest.mark.thorough
def test_answers_of_an_unproved_model_are_those_of_each_request_alone(served: Plane) -> None:
    _all_equal_alone(served, clients=16, requests=200)


@pytest.mark.slow
def test_64_clients_of_hostile_models_are_answered_as_if_alone(served: Plane) -> None:
    _all_equal_alone(served, clients=64, requests=4_000)


# What golden rows prove


@pytest.fixture(scope="module")
def quick_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, taking no time."""
    return save_model(tmp_path_factory.mktemp("hostile") / "quick")


@pytest.fixture
def quick_model(quick_folder: Path) -> Any:
    """It, loaded here, remembering nothing."""
    return mlflow_model.load(quick_folder, None)


def _golden(body: dict[str, Any], *, atol: float = 1e-6) -> GoldenPrediction:
    return GoldenPrediction(request=body, predictions=None, rtol=1e-5, atol=atol)


def _proved(
    model: Any,
    *golden: GoldenPrediction,
    max_rows: int = 64,
    stated: BatchingMode | None = None,
) -> BatchingReport:
    engine = Engine(model, name="hostile", version="1", max_rows=max_rows)
    return report_of(prove(engine, model, golden, max_rows=max_rows), stated)


@pytest.mark.parametrize("kind", [*CROSS_ROW, *CHANGING])
@pytest.mark.parametrize("values", thorough_after(1, [[1.5, -2.0, 4.25], [3.0]]))
def test_a_model_that_looks_across_rows_or_calls_is_refuted(
    quick_model: Any, kind: str, values: list[float]
) -> None:
    report = _proved(quick_model, _golden(request(kind, values)))
    assert (report.verdict, report.mode) == (BatchingVerdict.REFUTED, BatchingMode.REQUESTS)
    assert "golden row" in report.reason.lower() or "like the golden ones" in report.reason


def test_a_row_wise_model_is_proved_and_what_merging_gains_is_measured(quick_model: Any) -> None:
    report = _proved(quick_model, _golden(request("rowwise", [1.5, -2.0, 4.25])))
    assert (report.verdict, report.mode) == (BatchingVerdict.PROVED, BatchingMode.ROWS)
    assert report.merged_rows == 64
    assert report.alone_us is not None
    assert report.merged_us is not None
    assert min(report.merged_us, report.alone_us) > 0


def test_without_golden_rows_nothing_is_proved_and_nothing_merged(quick_model: Any) -> None:
    report = _proved(quick_model)
    assert (report.verdict, report.mode) == (BatchingVerdict.UNPROVED, BatchingMode.REQUESTS)
    assert "No golden rows" in report.reason


def test_an_example_against_merging_outweighs_what_the_author_stated(quick_model: Any) -> None:
    stated = BatchingMode.ROWS
    refuted = _proved(quick_model, _golden(request("share", [1.5, -2.0])), stated=stated)
    assert (refuted.mode, refuted.verdict) == (BatchingMode.REQUESTS, BatchingVerdict.REFUTED)
    assert refuted.reason.startswith("Its author declared rows.")
    unproved = _proved(quick_model, stated=stated)
    assert (unproved.mode, unproved.verdict) == (BatchingMode.ROWS, BatchingVerdict.UNPROVED)


@pytest.mark.parametrize("shape", ["records", "split", "inputs", "instances"])
def test_golden_rows_of_every_shape_are_asked_one_by_one(quick_model: Any, shape: str) -> None:
    values = [1.5, -2.0, 4.25]
    rows = [{"kind": "rank", "x": value} for value in values]
    columns = {"kind": ["rank"] * 3, "x": values}
    body: dict[str, Any] = {
        "records": {"dataframe_records": rows},
        "split": request("rank", values),
        "inputs": {"inputs": columns},
        "instances": {"instances": rows},
    }[shape]
    assert _proved(quick_model, _golden(body)).verdict == BatchingVerdict.REFUTED


class Normalised(torch.nn.Module):
    """A module whose batch norm was left in training mode: it normalises over its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised rows."""
        normed: torch.Tensor = self.norm(torch.cat([x, x * 2 + 1]))
        return normed[: x.shape[0]]


@pytest.mark.parametrize("kind", [kind for kind in ModelFormat if kind != ModelFormat.MLFLOW])
def test_no_format_is_assumed_to_be_row_wise(tmp_path: Path, kind: ModelFormat) -> None:
    golden = _golden({"inputs": [[1, 2, 3, 4], [4, 3, 2, 9]]})
    rowwise = open_model(spec(tmp_path, format=kind, entry=stored(tmp_path, kind)), tmp_path)
    assert _proved(rowwise, golden).mode == BatchingMode.ROWS
    assert _proved(rowwise).mode == BatchingMode.REQUESTS


def test_a_module_with_batch_norm_in_training_mode_is_refuted(tmp_path: Path) -> None:
    golden = _golden({"inputs": [[1, 2, 3, 4], [4, 3, 2, 9]]})
    report = _proved(torchscript(tmp_path, Normalised()), golden)
    assert report.verdict == BatchingVerdict.REFUTED
    report = _proved(torchscript(tmp_path, Counting()), golden)
    assert report.verdict == BatchingVerdict.REFUTED


@pytest.mark.thorough
def test_a_replica_reports_what_it_proved_and_why(tmp_path: Path) -> None:
    with plane() as dataplane:
        golden = GoldenPrediction(request={"inputs": [[1, 2, 3, 4]]}, predictions=[[20.0, 20.0]])
        folder = str(linear_model(tmp_path))
        dataplane.replica("rep-1", model_dir=folder, golden=[golden])
        dataplane.replica("rep-2", model_dir=folder)
        dataplane.replica("rep-3", model_dir=folder, batching={"mode": "off"})
        modes = []
        for name in ("rep-1", "rep-2", "rep-3"):
            batching = dataplane.portal.replicas[name][-1].batching
            assert batching is not None
            modes.append((batching.mode.value, batching.verdict.value))
        assert modes == [("rows", "proved"), ("requests", "unproved"), ("off", "unproved")]
