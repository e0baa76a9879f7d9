"""Baselines and golden predictions are recorded by themselves when a version is registered."""

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from portal.core import clock
from portal.core.clock import frozen
from portal.monitoring.analyst import analyst
from portal.monitoring.baselines import record_baselines
from portal.monitoring.models import BaselineRecord
from portal.registry.services.evaluations import golden_of
from slipway.samples import sample_of
from tests.personas import Api, Personas, json_of
from tests.portal.monitoring.captured import Traffic
from tests.portal.registry.store import FILES, INPUTS, MLMODEL, Store

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])


def _taking(names: str) -> dict[str, bytes]:
    """The files of a model that takes a table of these columns, a letter each."""
    inputs = [INPUTS[0] | {"name": name} for name in names]
    return FILES | {"MLmodel": MLMODEL.replace(json.dumps(INPUTS), json.dumps(inputs)).encode()}


def _log(store: Store, run: str, **samples: Any) -> None:
    """Log samples to a run, as the SDK does."""
    (place,) = store.root.glob(f"**/{run}/artifacts")
    files = {
        f"{name.replace('_', '-')}.json": json.dumps(it).encode() for name, it in samples.items()
    }
    store.write(str((place / "slipway/data").relative_to(store.root)), files)


def _rows(names: str, count: int) -> list[dict[str, float]]:
    random = np.random.default_rng(2)
    return [
        dict(zip(names, row, strict=True))
        for row in random.normal(size=(count, len(names))).tolist()
    ]


def test_what_a_run_logged_becomes_the_baseline_of_its_version(
    people: Personas, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store = Store(folder, people.vision.pk)
    run = store.run()
    random = np.random.default_rng(1)
    inputs = random.normal(size=(400, 3))
    scores = random.dirichlet([1, 1], size=400)
    sample = sample_of(inputs, predictions=scores, truth=scores.argmax(axis=1))
    _log(store, run, training=sample)
    bob = Api.of(people.bob)
    made = bob.post("projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"})
    assert made.status_code == 201, made.content
    with analyst() as connection:
        assert record_baselines(connection) == 1
        assert record_baselines(connection) == 0
    row = BaselineRecord.objects.get()
    assert (row.source, row.rows) == ("logged", 400)
    assert row.words == "400 rows that the run logged."
    features = {feature["name"]: feature for feature in row.features}
    assert {"in.x[0]", "in.x[2]", "out.class", "out.confidence"} <= features.keys()
    assert sum(features["in.x[1]"]["counts"]) == 400
    assert features["out.class"]["kind"] == "category"
    assert row.calibration is not None
    assert row.record is not None
    golden = golden_of(row.record)
    assert golden is not None
    assert golden.rows == 16
    assert json_of(bob.get("projects/vision/models/digits/versions/1"))["golden"] is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("uuid", "text", "rows"),
    [
        ("5f2c", '{"inputs": [{"x": 1.0}, {"x": 2.0}], "outputs": [3, 4]}', 2),
        ("5f2c", '{"inputs": [{"x": 1.0}], "outputs": [3, 4]}', None),
        ("5f2c", "\x00", None),
        ("../golden/5f2c", '{"inputs": [{"x": 1.0}], "outputs": [3]}', None),
    ],
)
def test_what_a_model_predicted_where_it_was_logged_proves_it(
    uuid: str,
    text: str,
    rows: int | None,
    people: Personas,
    settings: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store = Store(folder, people.vision.pk)
    run = store.run(files=_taking("x") | {"MLmodel": f"model_uuid: {uuid}\n{MLMODEL}".encode()})
    bob = Api.of(people.bob)
    bob.post("projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"})
    _log(store, run, mlflow_train=sample_of(_rows("x", 300)))
    with analyst() as connection:
        assert record_baselines(connection) == 1
        row = BaselineRecord.objects.select_related("record").get()
        assert row.record is not None
        assert golden_of(row.record) is None
        # What a client that registers its models while it logs them tells a moment later.
        (place,) = store.root.glob(f"**/{run}/artifacts")
        golden = (place / "slipway/golden").relative_to(store.root)
        store.write(str(golden), {"5f2c.json": text.encode()})
        with frozen(clock.now() + timedelta(minutes=1)):
            assert record_baselines(connection) == 0
    sample = golden_of(row.record)
    assert (sample.rows if sample else None) == rows


@pytest.mark.thorough
def test_predictions_from_before_the_baseline_are_compared_with_it(
    traffic: Traffic, people: Personas, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    traffic.normal(300)
    traffic.look()
    assert traffic.shown()["features"] == []
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store = Store(folder, people.vision.pk)
    run = store.run(files=_taking("abcde"))
    _log(store, run, training=sample_of(_rows("abcde", 400)))
    traffic.api.post("projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"})
    traffic.look()
    shown = traffic.shown()
    assert shown["baseline"] == "400 rows that the run logged."
    assert {feature["rows"] for feature in shown["features"] if not feature["is_output"]} == {300}


@pytest.mark.thorough
def test_of_samples_the_one_counts_that_the_model_takes_without_what_it_does_not(
    people: Personas, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store = Store(folder, people.vision.pk)
    run = store.run(files=_taking("ab"))
    _log(store, run, mlflow_eval=sample_of(_rows("xyz", 300)))
    _log(store, run, mlflow_train=sample_of(_rows("abt", 500)), raw=sample_of(_rows("xy", 400)))
    Api.of(people.bob).post(
        "projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"}
    )
    with analyst() as connection:
        assert record_baselines(connection) == 1
    row = BaselineRecord.objects.get()
    assert row.words == "500 rows that the run logged."
    assert [feature["name"] for feature in row.features] == ["in.a", "in.b"]


@pytest.mark.thorough
def test_it_is_said_that_inputs_of_mlflow_have_no_rows_and_what_to_do(
    traffic: Traffic, people: Personas, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store = Store(folder, people.vision.pk)
    run = store.run()
    store.reads(run, "numbers", "5f2c")
    traffic.api.post("projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"})
    traffic.normal(1_100)
    traffic.look()
    traffic.look()
    message = traffic.shown()["baseline"]
    assert message.startswith(
        "The first 1,100 rows it predicted, because MLflow stores the columns of"
    )
    assert "numbers but none of the rows" in message
    assert "slipway.track.data" in message


def test_a_version_without_data_is_looked_at_again_and_never_forever(
    people: Personas, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    run = Store(folder, people.vision.pk).run()
    bob = Api.of(people.bob)
    bob.post("projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"})
    with analyst() as connection:
        assert record_baselines(connection) == 0
    row = BaselineRecord.objects.get()
    assert (row.source, row.looks) == ("", 1)
    assert row.next_look_at > row.created_at
