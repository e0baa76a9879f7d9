"""Specification of a replica: its model, its files and its golden predictions."""

from django.conf import settings

from portal.endpoints.models import Replica
from portal.endpoints.ports import ServedModel
from portal.endpoints.replicas import cipher
from portal.workloads.models import Lease
from portal.workloads.services.relay import relay_target
from portal.workloads.tokens import token_of
from slipway.schemas.serving import (
    Batching,
    BatchingMode,
    GoldenPrediction,
    ModelFile,
    ModelFormat,
    ReplicaSpec,
    Signature,
)

_LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0:0"


def own_url(replica_id: str) -> str:
    """Return the URL where a replica reads its specification and sends its reports."""
    return f"{settings.SLIPWAY_URL}/api/gateway/v1/replicas/{replica_id}"


def placed_replica_spec(replica: Replica) -> ReplicaSpec:
    """Return the specification of a replica whose workload has been placed."""
    workload = replica.workload
    assert workload is not None  # noqa: S101  (the request carries the token of the workload)
    lease = Lease.objects.of_epoch(workload).select_related("node").first()
    address = lease.node.address if lease is not None else _LOOPBACK
    token = token_of(workload.pk, workload.epoch)
    target = relay_target(workload)
    if target is None:
        return spec_of(replica, address, token)
    # It listens on the socket that the launcher has opened, to which the relay leads.
    in_pool = {"listen": f"{_LOOPBACK}:0", "advertise_host": target.address}
    return spec_of(replica, address, token).model_copy(update=in_pool)


def spec_of(replica: Replica, address: str, token: str) -> ReplicaSpec:
    """Return the specification of a replica on the machine with that address."""
    served = ServedModel.model_validate(replica.revision.served)
    own = own_url(replica.pk)
    is_here = address in ("", _LOOPBACK, "localhost")
    return ReplicaSpec(
        replica_id=replica.pk,
        endpoint_id=replica.endpoint_id,
        endpoint=replica.endpoint.name,
        revision_id=replica.revision_id,
        model=served.model,
        model_version=served.version,
        format=ModelFormat(served.format),
        model_dir=served.model_dir,
        entry=served.entry,
        files=[
            ModelFile(
                path=file.path,
                sha256=file.sha256,
                size_bytes=file.size_bytes,
                url=f"{own}/files/{number}" if file.place else None,
            )
            for number, file in enumerate(served.files)
        ],
        signature=Signature.model_validate(served.signature) if served.signature else None,
        golden=[GoldenPrediction.model_validate(item) for item in served.golden],
        batching=Batching(mode=BatchingMode(served.batching) if served.batching else None),
        listen=f"{_LOOPBACK}:0" if is_here else _EVERYWHERE,
        advertise_host=None if is_here else address,
        secret=cipher().decrypt(bytes(replica.secret)).decode(),
        report_url=f"{own}/reports",
        token=token,
    )
