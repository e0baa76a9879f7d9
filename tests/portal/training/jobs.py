"""Code and jobs for tests, made through the REST API."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse

from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Api, json_of

CODE = {"train.py": b"print('hello')\n", "lib/model.py": b"SIZE = 3\n", "data.csv": b"1,2\n"}
OCTETS = "application/octet-stream"


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """Return a tar of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    """Return the hex SHA-256."""
    return hashlib.sha256(content).hexdigest()


def send_snapshot(
    api: Api, content: bytes, *, project: str = "vision", kind: str = OCTETS, **headers: str
) -> HttpResponse:
    """Upload bytes as a snapshot; headers are written with underscores."""
    sent = {"Authorization": f"Bearer {api.token}", "Content-Type": kind}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    answer: Any = api.client.generic(
        "POST",
        f"/api/v1/projects/{project}/snapshots",
        content,
        content_type=kind,
        headers=sent,
    )
    response: HttpResponse = answer
    return response


def take_code(api: Api, files: Mapping[str, bytes] = CODE, *, project: str = "vision") -> str:
    """Upload files as a snapshot; returns the digest."""
    answer = send_snapshot(api, tar_of(files), project=project)
    assert answer.status_code == 201, answer.content
    digest: str = json_of(answer)["digest"]
    return digest


def submit(api: Api, **changes: Any) -> HttpResponse:
    """Submit the usual script of the usual code, with changes."""
    body = {"script": "train.py", "tier": "small"} | changes
    body.setdefault("snapshot", digest_of(tar_of(CODE)))
    return api.post("projects/vision/jobs", body)


def made_job(api: Api, **changes: Any) -> dict[str, Any]:
    """Upload the usual code, submit a job that must be accepted and return it."""
    take_code(api)
    answer = submit(api, **changes)
    assert answer.status_code == 201, answer.content
    job: dict[str, Any] = json_of(answer)
    return job


def workload_of(job: Mapping[str, Any]) -> Workload:
    """Return the row behind a job."""
    return Workload.objects.get(pk=job["workload"]["id"])


def place(job: Mapping[str, Any]) -> Workload:
    """Let the scheduler place a job on the machines there are."""
    run_passes()
    workload = workload_of(job)
    assert workload.state == "placed", workload.state
    return workload
