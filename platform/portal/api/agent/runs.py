"""Reports, logs, code, environments and samples of the tasks of a node."""

from collections.abc import Iterator
from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.api.agent.requires import agent_gate
from portal.api.uploads import body_of
from portal.compute.gates import NodeToken, gated_node
from portal.compute.services.environments import options_of
from portal.core.streams import ByteStream, release_connection
from portal.workloads.services.logs import append_log
from portal.workloads.services.package_archives import archive_for
from portal.workloads.services.reports import accept_reports
from portal.workloads.services.samples import accept_samples
from portal.workloads.services.snapshots import apply_build_report, environment_for, snapshot_for
from slipway.schemas.agent import (
    EnvironmentReport,
    EnvironmentSpec,
    LogAnswer,
    Reports,
    ReportsAnswer,
    Samples,
)
from slipway.schemas.base import Line

router = Router(tags=["Runs"])


class EnvironmentQuery(BaseModel):
    """The project whose task needs an environment, by its id."""

    project: Annotated[Line, Field(max_length=40)] = ""


class OffsetQuery(BaseModel):
    """Offset of the first byte of the body in the log. `last` marks the end of the log."""

    offset: int = Field(ge=0, le=2**53)
    last: bool = False


@router.post("/reports", auth=agent_gate(NodeToken()), response=ReportsAnswer)
def report_tasks(request: HttpRequest, payload: Reports) -> ReportsAnswer:
    """Accept reports about tasks."""
    return accept_reports(
        node=gated_node(request), reports=payload.reports, sent_unix_ms=payload.sent_unix_ms
    )


@router.put(
    "/logs/{task_id}/{int:epoch}/{int:rank}", auth=agent_gate(NodeToken()), response=LogAnswer
)
def upload_log(
    request: HttpRequest, task_id: str, epoch: int, rank: int, query: Query[OffsetQuery]
) -> LogAnswer:
    """Append bytes to the log of a rank. The body is the raw bytes."""
    end = append_log(
        node=gated_node(request),
        task_id=task_id,
        epoch=epoch,
        rank=rank,
        offset=query.offset,
        pieces=_arriving(request),
        is_last=query.last,
    )
    return LogAnswer(next_offset=end)


def _arriving(request: HttpRequest) -> Iterator[bytes]:
    """Yield the body as it arrives. No database connection is held meanwhile."""
    release_connection()
    yield from body_of(request)


@router.get("/snapshots/{digest}", auth=agent_gate(NodeToken()), response=None)
def download_snapshot(request: HttpRequest, digest: str) -> ByteStream:
    """Stream the code of a task of this node, as a tar."""
    pieces, size = snapshot_for(node=gated_node(request), digest=digest)
    response = ByteStream(pieces, content_type="application/x-tar")
    response.headers["Content-Length"] = str(size)
    return response


@router.get("/environments/{digest}", auth=agent_gate(NodeToken()), response=EnvironmentSpec)
def get_environment(
    request: HttpRequest, digest: str, query: Query[EnvironmentQuery]
) -> EnvironmentSpec:
    """Return the specification of the environment of a task of this node.

    With the id of a project, for a task of that project.
    """
    environment, secrets = environment_for(
        node=gated_node(request), digest=digest, project_id=query.project
    )
    # Exact versions of another node, unless the requirements name the very files by their hashes.
    requirements = environment.requirements
    if environment.locked and not environment.conda and " --hash=" not in requirements:
        requirements = "\n".join([*options_of(requirements), environment.locked])
    return EnvironmentSpec(
        digest=environment.digest,
        requirements=requirements,
        python=environment.python,
        secrets=secrets,
        dockerfile=environment.dockerfile,
        context=environment.context,
        copies=environment.copies,
        conda=environment.conda,
        conda_locked=environment.locked if environment.conda else "",
    )


@router.get("/environments/{digest}/archives/{sha256}", auth=agent_gate(NodeToken()), response=None)
def download_archive(
    request: HttpRequest, digest: str, sha256: str, query: Query[EnvironmentQuery]
) -> ByteStream:
    """Stream a wheel or a source archive that an environment of a task of this node names."""
    pieces, size = archive_for(
        node=gated_node(request), environment=digest, digest=sha256, project_id=query.project
    )
    response = ByteStream(pieces, content_type="application/octet-stream")
    response.headers["Content-Length"] = str(size)
    return response


@router.post("/environments/{digest}/reports", auth=agent_gate(NodeToken()), response=LogAnswer)
def report_build(request: HttpRequest, digest: str, payload: EnvironmentReport) -> LogAnswer:
    """Accept the state of a build and a piece of its log."""
    node = gated_node(request)
    end = apply_build_report(node=node, digest=digest, report=payload)
    return LogAnswer(next_offset=end)


@router.post("/samples", auth=agent_gate(NodeToken()), response={204: None})
def report_samples(request: HttpRequest, payload: Samples) -> Status[None]:
    """Accept resource usage of tasks."""
    accept_samples(
        node=gated_node(request), samples=payload.samples, sent_unix_ms=payload.sent_unix_ms
    )
    return Status(204, None)
