"""Artifacts of runs in a bucket of an S3-compatible server: a client notices nothing."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

from tests.portal.storage.swift_server import S3Server, s3_server
from tests.processes import clean_environment
from tests.tracking import TrackingPortal, tracking_portal

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_WALK = Path(__file__).parent / "walk.py"
_BUCKET = "runs-of-slipway"


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    """A real server with a bucket."""
    with s3_server() as server:
        server.make_bucket(_BUCKET)
        yield server


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory: pytest.TempPathFactory, bucket: S3Server) -> Iterator[TrackingPortal]:
    """A portal that keeps everything there."""
    access = {
        "SLIPWAY_STORAGE_URL": f"s3://{_BUCKET}/one",
        "SLIPWAY_S3_ENDPOINT_URL": bucket.endpoint_url,
        "SLIPWAY_S3_ACCESS_KEY_ID": str(bucket.options["key"]),
        "SLIPWAY_S3_SECRET_ACCESS_KEY": str(bucket.options["secret"]),
    }
    with tracking_portal(tmp_path_factory.mktemp("on_s3"), **access) as running:
        yield running


def kept_files(bucket: S3Server) -> list[str]:
    """Return the names of all artifacts in the bucket."""
    files: Any = s3fs.S3FileSystem(
        client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True, **bucket.options
    )
    return sorted(files.find(f"{_BUCKET}/one/artifacts"))


def test_an_unmodified_client_keeps_and_loads_there(
    on_s3: TrackingPortal, bucket: S3Server
) -> None:
    done = subprocess.run(
        [sys.executable, str(_WALK)],
        env=clean_environment()
        | {
            "MLFLOW_TRACKING_URI": on_s3.uri("alice"),
            "MLFLOW_TRACKING_TOKEN": on_s3.portal.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "GIT_PYTHON_REFRESH": "quiet",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["text"], result["same"], result["versions"]) == ("hello", True, ["1"])
    assert any(name.endswith("/artifacts/notes/hello.txt") for name in kept_files(bucket))
    assert not list((on_s3.portal.installation.data_dir / "artifacts").glob("**/hello.txt"))


def test_the_portal_lists_reads_and_destroys_them_there(
    on_s3: TrackingPortal, bucket: S3Server
) -> None:
    client = on_s3.client("alice")
    run = client.new_run(client.new_experiment(f"s3-{secrets.token_hex(3)}"))
    project = on_s3.projects["alice"]
    uri = client.get("runs/get", run_id=run)["run"]["info"]["artifact_uri"]
    place = uri.removeprefix("mlflow-artifacts:/").strip("/")
    content = secrets.token_bytes(9 * 1024**2)
    way = f"/api/2.0/mlflow-artifacts/artifacts/{place}/deep/weights.bin"
    sent = client.call("PUT", way, content=content)
    assert sent.status_code == 200, sent.text
    names = [name for name in kept_files(bucket) if run in name]
    assert [name.rpartition("/")[2] for name in names] == ["weights.bin"]
    with on_s3.portal.client("alice") as api:
        at = f"/projects/{project}/runs/{run}/artifacts"
        (folder,) = api.get(at).json()
        assert (folder["path"], folder["is_folder"]) == ("deep", True)
        (file,) = api.get(at, params={"path": "deep"}).json()
        assert (file["path"], file["size_bytes"]) == ("deep/weights.bin", len(content))
        read = api.get(f"{at}/content", params={"path": "deep/weights.bin"})
        assert read.content == content
        deleted = api.post(f"/projects/{project}/runs/delete", json={"runs": [run]})
        assert deleted.is_success, deleted.text
        freed = api.post(f"/projects/{project}/trash/empty")
        assert freed.is_success, freed.text
        assert freed.json()["size_bytes"] == len(content)
    assert not [name for name in kept_files(bucket) if run in name]
