"""Paths that cannot be those of artifacts are refused, and disturb nobody else."""

from collections import Counter
from dataclasses import dataclass

import httpx
import pytest

from tests.tracking import Rest, TrackingPortal

pytestmark = pytest.mark.postgres

_FILES = "/api/2.0/mlflow-artifacts"
_TURNS = 15


@dataclass
class Artifacts:
    """The artifacts of a new run, which has the file `d/f`."""

    rest: Rest
    run: str
    experiment: str

    @classmethod
    def of(cls, rest: Rest) -> "Artifacts":
        """Begin a run and write its file."""
        run = rest.new_run()
        info = rest.get("runs/get", run_id=run)["run"]["info"]
        artifacts = cls(rest, run, str(info["experiment_id"]))
        assert artifacts.put(artifacts.path("d/f")).status_code == 200
        return artifacts

    def path(self, below: str) -> str:
        """The path of an artifact, as the addresses have it."""
        return f"{self.experiment}/{self.run}/artifacts/{below}"

    def put(self, path: str, content: bytes = b"x") -> httpx.Response:
        """Write a file."""
        return self.rest.call("PUT", f"{_FILES}/artifacts/{path}", content=content)

    def get(self, path: str) -> httpx.Response:
        """Read a file."""
        return self.rest.call("GET", f"{_FILES}/artifacts/{path}")

    def delete(self, path: str) -> httpx.Response:
        """Delete a file or a folder."""
        return self.rest.call("DELETE", f"{_FILES}/artifacts/{path}")

    def multipart(self, step: str, path: str) -> httpx.Response:
        """Create, complete or abort an upload in parts."""
        body = {"path": "f", "num_parts": 1, "upload_id": "1", "parts": []}
        return self.rest.call("POST", f"{_FILES}/mpu/{step}/{path}", json=body)


@pytest.fixture
def bob(tracking: TrackingPortal) -> Artifacts:
    return Artifacts.of(tracking.client("charlie"))


@pytest.fixture
def alice(tracking: TrackingPortal) -> Artifacts:
    return Artifacts.of(tracking.client("alice"))


def above_artifacts(artifacts: Artifacts) -> list[str]:
    """Folders in which MLflow keeps artifacts, and places beside them."""
    experiment, run = artifacts.experiment, artifacts.run
    return [
        experiment,
        f"{experiment}/{run}",
        f"{experiment}/{run}/artifacts",
        f"{experiment}/{run}/x",
        f"{experiment}/{run}/x/y",
        f"{experiment}/models",
        f"{experiment}/models/m-1",
        f"{experiment}/models/m-1/artifacts",
        f"{experiment}/traces/tr-1/artifacts",
        "artifacts/x",
        "new-file",
    ]


def check_refused(answer: httpx.Response) -> None:
    """The answer has the status and the shape of MLflow's errors."""
    assert answer.status_code == 400, (answer.request.url.path, answer.text[:300])
    assert answer.headers["content-type"].startswith("application/json"), answer.text
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert answer.json()["message"]


def test_only_files_of_runs_models_and_traces_are_written(bob: Artifacts) -> None:
    for path in (*above_artifacts(bob), bob.path("d"), bob.path("d/f/g"), bob.path("d/f/g/h")):
        check_refused(bob.put(path))
        for step in ("create", "complete", "abort"):
            check_refused(bob.multipart(step, path))
    assert bob.get(bob.path("d/f")).content == b"x"


def test_only_artifacts_are_deleted(bob: Artifacts) -> None:
    for path in above_artifacts(bob):
        if not path.endswith("/artifacts"):
            check_refused(bob.delete(path))
    check_refused(bob.delete(bob.path("d/f/g")))
    assert bob.get(bob.path("d/f")).content == b"x"
    assert bob.delete(bob.path("d")).status_code == 200
    assert bob.get(bob.path("d/f")).status_code == 404
    assert bob.put(bob.path("d")).status_code == 200


def test_folders_are_not_read_and_nothing_is_under_a_file(bob: Artifacts) -> None:
    for path in (bob.experiment, bob.path("d"), bob.path("d/f/g")):
        check_refused(bob.get(path))
    for query in ("d/f/g", "d/f/g/h"):
        check_refused(
            bob.rest.call("GET", "artifacts/list", params={"run_id": bob.run, "path": query})
        )
        check_refused(bob.rest.call("GET", f"{_FILES}/artifacts", params={"path": bob.path(query)}))
    # Clients list a path to learn whether it is a file.
    for query in ("d", "d/f", "nothing", "nothing/x"):
        listed = bob.rest.call("GET", "artifacts/list", params={"run_id": bob.run, "path": query})
        assert listed.status_code == 200, listed.text


def test_models_and_traces_have_artifacts_too(bob: Artifacts) -> None:
    for folder in ("models/m-1", "traces/tr-1"):
        path = f"{bob.experiment}/{folder}/artifacts/x"
        assert bob.put(path).status_code == 200
        assert bob.get(path).content == b"x"
        assert bob.delete(f"{bob.experiment}/{folder}/artifacts").status_code == 200


def test_failures_of_one_project_do_not_reach_another(bob: Artifacts, alice: Artifacts) -> None:
    """Requests share connections to MLflow's server, which drops them after its exceptions."""
    statuses: Counter[tuple[str, int]] = Counter()
    for turn in range(_TURNS):
        bob.put(bob.path("d"))
        statuses["put", alice.put(alice.path(f"{turn}"), b"hello" * 1000).status_code] += 1
        bob.put(bob.experiment)
        statuses["get", alice.get(alice.path("d/f")).status_code] += 1
        bob.put(bob.path("d/f/g"))
        body = {"experiment_ids": [alice.experiment], "filter": "params.`a b` = 'b'"}
        searched = alice.rest.call("POST", "runs/search", json=body)
        statuses["search", searched.status_code] += 1
    assert statuses == {("put", 200): _TURNS, ("get", 200): _TURNS, ("search", 200): _TURNS}


def test_files_of_uploaded_models_have_a_folder_of_their_own(bob: Artifacts) -> None:
    upload = "models/linear/0123456789abcdef"
    assert bob.put(f"{upload}/data/model.onnx").status_code == 200
    assert bob.get(f"{upload}/data/model.onnx").content == b"x"
    for path in ("models/linear", upload, "models/linear/1/model.onnx", f"{upload}/data"):
        check_refused(bob.put(path))
