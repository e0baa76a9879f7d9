"""Runs and experiments through the API: found, shown, compared, thrown away and taken back."""

import math
import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from pytest_django import Settings

from portal.accounts.models import AuditEvent
from portal.experiments.models import Experiment, Metric, Run
from portal.experiments.tasks import measure_artifacts
from portal.storage.usage import stored_bytes
from tests.personas import Api, Personas, json_of
from tests.portal.experiments.world import log_curve, make_experiment, make_run

pytestmark = pytest.mark.postgres

NOBODY = "0" * 32


@pytest.fixture(autouse=True)
def _place(settings: Settings, tmp_path: Path) -> Path:
    settings.SLIPWAY_ARTIFACTS_URL = tmp_path.as_uri()
    return tmp_path


@pytest.fixture
def digits(people: Personas) -> Experiment:
    """An experiment of vision with two runs; Charlie's other project has one too."""
    made = make_experiment(people.vision)
    make_run(made, "first", metrics={"loss": 0.5}, params={"lr": "0.1", "opt": "sgd"})
    make_run(made, "second", minute=1, metrics={"loss": math.nan}, params={"lr": "0.2"})
    make_run(make_experiment(people.other), "foreign", metrics={"loss": 0.1})
    return made


def run_named(name: str) -> Run:
    """A run by its name."""
    return Run.objects.get(name=name)


def write(folder: Path, run: Run, name: str, content: bytes) -> None:
    """Write an artifact where MLflow would."""
    place = str(run.artifact_uri).removeprefix("mlflow-artifacts:/")
    file = folder / place / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def test_name_notes_tags_and_experiment_of_runs_are_changed_and_audited(
    people: Personas, digits: Experiment
) -> None:
    bob, first, second = Api.of(people.bob), run_named("first"), run_named("second")
    address = f"projects/vision/runs/{first.pk}"
    body = {"name": "winner", "note": "# Why", "tags": {"team": "vision", "absent": None}}
    changed = json_of(bob.patch(address, body))
    assert (changed["name"], changed["tags"]["team"]) == ("winner", "vision")
    assert changed["tags"]["mlflow.note.content"] == "# Why"
    event = AuditEvent.objects.filter(verb="run.update").get()
    assert event.target_label == "first"
    assert event.after == {"team": "vision", "mlflow.runName": "winner", "note": "changed"}
    for tags in ({"mlflow.user": "x"}, {"slipway.job": None}, {"a//b": "x"}, {"": "x"}):
        assert bob.patch(address, {"tags": tags}).status_code == 422
    foreign = run_named("foreign")
    both = {"runs": [first.pk, second.pk, foreign.pk], "tags": {"team": None, "kind": "a"}}
    tagged = json_of(bob.post("projects/vision/runs/tag", both))["runs"]
    assert sorted(tagged) == sorted([first.pk, second.pk])
    assert not foreign.tags.exists()
    assert dict(second.tags.values_list("key", "value")) == {"kind": "a"}
    other = make_experiment(people.vision, "other")
    moved = json_of(
        bob.post("projects/vision/runs/move", {"runs": both["runs"], "experiment": other.pk})
    )
    assert sorted(moved["runs"]) == sorted(tagged)
    refused = bob.post(
        "projects/vision/runs/move", {"runs": tagged, "experiment": foreign.experiment_id}
    )
    assert (refused.status_code, json_of(refused)["code"]) == (422, "no_such_experiment")
    bob.post("projects/vision/runs/delete", {"runs": [first.pk]})
    assert json_of(bob.patch(address, {"name": "x"}))["code"] == "run_in_trash"
    assert Api.of(people.vera).patch(address, {"name": "x"}).status_code == 403
    listed = json_of(bob.get("projects/vision/runs?search=kind"))["items"]
    assert [run["name"] for run in listed] == ["second"]


def test_runs_are_found_by_mlflows_filter_with_all_that_is_logged(
    people: Personas, digits: Experiment
) -> None:
    vera = Api.of(people.vera)
    query = urlencode({"filter": "params.lr = '0.2'", "experiment": digits.pk})
    (run,) = json_of(vera.get(f"projects/vision/runs?{query}"))["items"]
    assert (run["name"], run["params"], run["metrics"]) == (
        "second",
        {"lr": "0.2"},
        {"loss": "NaN"},
    )
    first = json_of(vera.get("projects/vision/runs?order=metrics.loss&limit=1"))
    assert first["items"][0]["name"] == "first"
    cursor = urlencode({"cursor": first["next_cursor"]})
    rest = json_of(vera.get(f"projects/vision/runs?order=metrics.loss&{cursor}"))
    assert [run["name"] for run in rest["items"]] == ["second"]
    refused = vera.get("projects/vision/runs?" + urlencode({"filter": "metrics.loss >"}))
    assert refused.status_code == 422
    assert json_of(refused)["field"] == "filter"
    assert "At position 15" in json_of(refused)["detail"]


def test_curves_come_thinned_out_and_spelled(people: Personas, digits: Experiment) -> None:
    run = run_named("first")
    log_curve(run, "acc", [float(step) for step in range(500)] + [math.inf])
    path = f"projects/vision/runs/curves?run={run.pk}&key=acc&points=20"
    (curve,) = json_of(Api.of(people.vera).get(path))
    assert curve["total"] == 501
    assert len(curve["points"]) <= 25
    assert curve["points"][-1] == {
        "step": 500,
        "at_ms": (run.start_time or 0) + 500_000,
        "value": "Infinity",
    }


def test_a_part_of_a_curve_has_all_its_points(people: Personas, digits: Experiment) -> None:
    run = run_named("first")
    log_curve(run, "acc", [float(step) for step in range(500)])
    path = f"projects/vision/runs/curves?run={run.pk}&key=acc&points=20"
    api, started = Api.of(people.vera), run.start_time or 0
    (curve,) = json_of(api.get(f"{path}&start=100&end=109"))
    assert curve["total"] == 10
    assert [point["step"] for point in curve["points"]] == list(range(100, 110))
    times = f"&axis=time&start={started + 490_000}"
    (curve,) = json_of(api.get(path + times))
    assert [point["step"] for point in curve["points"]] == list(range(490, 500))
    (curve,) = json_of(api.get(f"{path}&end=99"))
    assert curve["total"] == 100
    assert len(curve["points"]) <= 25
    assert json_of(api.get(f"{path}&start=600")) == []


def test_runs_are_compared_by_what_differs(people: Personas, digits: Experiment) -> None:
    ids = [run_named(name).pk for name in ("second", "first", "foreign")]
    query = urlencode([("run", run_id) for run_id in [*ids, NOBODY]])
    comparison = json_of(Api.of(people.vera).get(f"projects/vision/runs/compare?{query}"))
    assert [run["name"] for run in comparison["runs"]] == ["second", "first"]
    assert comparison["differing_params"] == ["lr", "opt"]
    assert comparison["metrics"] == ["loss"]


def test_what_is_deleted_can_be_taken_back_and_then_destroyed_with_its_bytes(
    people: Personas, digits: Experiment, tmp_path: Path
) -> None:
    bob, run = Api.of(people.bob), run_named("first")
    write(tmp_path, run, "model/weights.bin", b"x" * 1000)
    write(tmp_path, run_named("foreign"), "a.txt", b"theirs")
    body = {"runs": [run.pk, run_named("foreign").pk, NOBODY]}
    assert json_of(bob.post("projects/vision/runs/delete", body)) == {"runs": [run.pk]}
    assert json_of(bob.post("projects/vision/runs/delete", body)) == {"runs": []}
    listed = json_of(bob.get("projects/vision/runs?stage=deleted"))["items"]
    assert [it["name"] for it in listed] == ["first"]
    assert json_of(bob.post("projects/vision/runs/restore", body)) == {"runs": [run.pk]}
    bob.post("projects/vision/runs/delete", body)
    assert bob.post("projects/vision/trash/empty").status_code == 403
    freed = json_of(Api.of(people.mia).post("projects/vision/trash/empty"))
    assert freed == {"runs": 1, "files": 1, "size_bytes": 1000}
    assert bob.get(f"projects/vision/runs/{run.pk}").status_code == 404
    assert not Metric.objects.filter(run_id=run.pk).exists()
    assert Run.objects.filter(name="foreign", lifecycle_stage="active").exists()
    assert [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] == [b"theirs"]


def test_bytes_that_no_run_knows_are_freed_but_not_young_ones(
    people: Personas, digits: Experiment, tmp_path: Path
) -> None:
    root = tmp_path / "workspaces" / people.vision.pk / str(digits.pk)
    for name, age_s in (("a" * 32, 7200), ("b" * 32, 0), (run_named("first").pk, 7200)):
        file = root / name / "artifacts" / "f"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")
        stamp = file.stat().st_mtime - age_s
        os.utime(file, (stamp, stamp))
    freed = json_of(Api.of(people.alice).post("projects/vision/trash/empty"))
    assert freed == {"runs": 0, "files": 1, "size_bytes": 5}
    assert sorted(path.name for path in root.iterdir()) == sorted(["b" * 32, run_named("first").pk])


def test_artifacts_count_as_stored_until_they_are_destroyed(
    people: Personas, digits: Experiment, tmp_path: Path
) -> None:
    write(tmp_path, run_named("first"), "model/weights.bin", b"x" * 1000)
    write(tmp_path, run_named("second"), "a.txt", b"hello")
    write(tmp_path, run_named("foreign"), "a.txt", b"theirs")
    measure_artifacts()
    assert stored_bytes()["artifacts"] == {people.vision.pk: 1005, people.other.pk: 6}
    Api.of(people.bob).post("projects/vision/runs/delete", {"runs": [run_named("first").pk]})
    Api.of(people.mia).post("projects/vision/trash/empty")
    assert stored_bytes()["artifacts"][people.vision.pk] == 5


def test_an_experiment_goes_to_the_bin_and_comes_back_with_the_runs_that_went_with_it(
    people: Personas, digits: Experiment
) -> None:
    bob = Api.of(people.bob)
    bob.post("projects/vision/runs/delete", {"runs": [run_named("first").pk]})
    assert bob.delete(f"projects/vision/experiments/{digits.pk}").status_code == 204
    assert json_of(bob.get("projects/vision/experiments")) == []
    (binned,) = json_of(bob.get("projects/vision/experiments?stage=deleted"))
    assert binned["deleted_at"]
    back = json_of(bob.post(f"projects/vision/experiments/{digits.pk}/restore"))
    assert (back["name"], back["runs"]) == ("digits", 1)
    assert run_named("first").lifecycle_stage == "deleted"


def test_artifacts_are_listed_and_downloaded_and_nothing_beside_them(
    people: Personas, digits: Experiment, tmp_path: Path
) -> None:
    vera, run = Api.of(people.vera), run_named("first")
    write(tmp_path, run, "plots/a b.png", b"picture")
    write(tmp_path, run, "note.txt", b"hello")
    (tmp_path / "secret").write_text("no")
    at = f"projects/vision/runs/{run.pk}/artifacts"
    assert [it["path"] for it in json_of(vera.get(at))] == ["plots", "note.txt"]
    assert json_of(vera.get(f"{at}?path=plots")) == [
        {"path": "plots/a b.png", "is_folder": False, "size_bytes": 7}
    ]
    answer = vera.get(f"{at}/content?path=plots/a%20b.png")
    assert b"".join(answer) == b"picture"
    for path in ("../../../../../secret", "plots", "/etc/passwd", "none", "..", "a\\..\\b"):
        refused = vera.get(f"{at}/content?{urlencode({'path': path})}")
        assert refused.status_code in (404, 422), path
