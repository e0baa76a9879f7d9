"""Operations of gateways (snapshot, reports) and replicas (spec, model files, reports)."""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.api.agent.requires import agent_gate
from portal.core.streams import ByteStream, release_connection
from portal.endpoints.gates import GatewayToken, ReplicaToken, gated_gateway, gated_replica
from portal.endpoints.models import ServingVersion
from portal.endpoints.replica_spec import placed_replica_spec
from portal.endpoints.services.reports import (
    accept_gateway_report,
    accept_replica_report,
    read_model_file,
)
from portal.endpoints.snapshots import snapshot
from slipway.schemas.serving import GatewayReport, GatewaySnapshot, ReplicaReport, ReplicaSpec

router = Router(tags=["Serving"])


class SnapshotQuery(BaseModel):
    """The response waits up to `wait_s` for a version newer than `If-None-Match`."""

    wait_s: float = Field(default=0, ge=0, le=60)


@router.get(
    "/snapshot", auth=agent_gate(GatewayToken()), response={200: GatewaySnapshot, 304: None}
)
def get_snapshot(
    request: HttpRequest, response: HttpResponse, query: Query[SnapshotQuery]
) -> Status[GatewaySnapshot | None]:
    """Return the snapshot of the gateway, after the long poll (`portal.api.agent.long_poll`)."""
    version = ServingVersion.objects.current()
    if request.headers.get("If-None-Match") == _etag(version):
        return Status(304, None)
    gateway_snapshot = snapshot()
    response.headers["ETag"] = _etag(gateway_snapshot.version)
    return Status(200, gateway_snapshot)


def _etag(version: int) -> str:
    return f'"{version}"'


@router.post("/reports", auth=agent_gate(GatewayToken()), response={204: None})
def report_gateway(request: HttpRequest, payload: GatewayReport) -> Status[None]:
    """Accept the report of a gateway."""
    accept_gateway_report(gateway=gated_gateway(request), report=payload)
    return Status(204, None)


@router.post("/replicas/{replica}/reports", auth=agent_gate(ReplicaToken()), response={204: None})
def report_replica(request: HttpRequest, replica: str, payload: ReplicaReport) -> Status[None]:
    """Accept the state of a replica."""
    accept_replica_report(replica=gated_replica(request), report=payload)
    return Status(204, None)


@router.get("/replicas/{replica}/orders", auth=agent_gate(ReplicaToken()), response=ReplicaSpec)
def get_replica_spec(request: HttpRequest, replica: str) -> ReplicaSpec:
    """Return the configuration of a replica, with the secret that authenticates gateways."""
    return placed_replica_spec(gated_replica(request))


@router.get(
    "/replicas/{replica}/files/{int:number}", auth=agent_gate(ReplicaToken()), response=None
)
def download_model_file(request: HttpRequest, replica: str, number: int) -> ByteStream:
    """Stream a file of the replica's model."""
    pieces, size = read_model_file(replica=gated_replica(request), number=number)
    release_connection()
    answer = ByteStream(pieces, content_type="application/octet-stream")
    answer.headers["Content-Length"] = str(size)
    return answer
