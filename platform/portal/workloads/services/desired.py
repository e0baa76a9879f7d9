"""Desired state of a node: level-triggered, so repeated requests are harmless."""

from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from django.conf import settings

from portal.accounts.services.secrets import secrets_of
from portal.compute.image_registry import repository_of
from portal.compute.models import BuildRequest, Node
from portal.workloads.builds_ahead import open_requests
from portal.workloads.gangs import gang_members
from portal.workloads.lifecycle import LeaseState, StopOutcome
from portal.workloads.models import Lease, Workload
from portal.workloads.ports import file_requests, kind_of, warm_programs
from portal.workloads.services.dashboards import dashboard_tasks
from portal.workloads.services.shells import shell_tasks
from portal.workloads.specs import RunSpec
from portal.workloads.tokens import token_of
from slipway.schemas.accounts import NetworkRule
from slipway.schemas.agent import (
    BuildAheadRequest,
    DesiredState,
    DesiredTask,
    GangMember,
    ImagePush,
    Rendezvous,
    ServiceAddress,
    TaskSpec,
)
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND
from slipway.schemas.workloads import ReasonCode, Resources, WorkloadState


def desired_for(*, node: Node) -> DesiredState:
    """Return everything the node should run or stop.

    The version is read first, so an answer may be newer than it says, never older.
    """
    version = Node.objects.values_list("desired_version", flat=True).get(pk=node.pk)
    open_leases = Lease.objects.open().filter(node=node).order_by("pk")
    leases = list(open_leases.select_related("workload", "workload__project"))
    tasks = []
    secrets: dict[str, dict[str, str]] = {}
    gangs = _starting_gangs(leases)
    for lease in leases:
        workload = lease.workload
        if workload.epoch != lease.epoch or workload.status == WorkloadState.STOPPING:
            tasks.append(_stop(lease, workload))
            continue
        if workload.is_kept and lease.failed_at is None:
            # Another task of its gang has failed. Its ranks end, and it is kept as well.
            tasks.append(_stop(lease, workload, keep=True))
            continue
        if workload.project_id not in secrets:
            secrets[workload.project_id] = secrets_of(workload.project)
        members = gangs.get(workload.pk)
        tasks.append(_start(lease, workload, members, secrets[workload.project_id]))
    return DesiredState(
        version=version,
        tasks=tasks,
        prewarm=warm_programs(),
        file_requests=list(file_requests(node)),
        shells=shell_tasks(node),
        dashboards=dashboard_tasks(node),
        builds_ahead=[
            BuildAheadRequest(
                id=request.pk,
                project=request.project_id,
                digest=request.environment.digest,
                # A build from source would run beside tasks of other projects.
                from_source=DEFAULT_BACKEND not in node.shared_backends,
                image=_image_push(request),
            )
            for request in open_requests(node).select_related("environment", "project")
        ],
    )


def _image_push(request: BuildRequest) -> ImagePush | None:
    """Return what an image is built from, and where it goes, None for other environments."""
    if not request.snapshot:
        return None
    resources = Resources(cpu_millis=request.cpu_millis, memory_bytes=request.memory_bytes, gpus=0)
    return ImagePush(
        snapshot=request.snapshot, resources=resources, repository=repository_of(request.project)
    )


def _starting_gangs(leases: Iterable[Lease]) -> dict[str, list[GangMember] | None]:
    """Return the members of the gangs with a task that waits for them."""
    waiting = [
        lease.workload
        for lease in leases
        if lease.workload.nodes > 1 and lease.state != LeaseState.RUNNING
    ]
    return gang_members(waiting) if waiting else {}


def _stop(lease: Lease, workload: Workload, *, keep: bool = False) -> DesiredTask:
    return DesiredTask(
        task_id=lease.task_id,
        workload_id=workload.pk,
        epoch=lease.epoch,
        index=lease.index,
        action="stop",
        stop_reason=ReasonCode.PEER_FAILED if keep else _stop_reason(workload),
        keep=keep,
    )


def _stop_reason(workload: Workload) -> ReasonCode:
    """Return the reason a stopped task reports. The peers of a failed one did nothing wrong."""
    if workload.plan == StopOutcome.JUDGE:
        return ReasonCode.PEER_FAILED
    return ReasonCode(workload.reason) if workload.reason else ReasonCode.PREEMPTED


def _start(
    lease: Lease, workload: Workload, members: list[GangMember] | None, secrets: dict[str, str]
) -> DesiredTask:
    rendezvous = None
    if workload.rendezvous_port:
        rendezvous = Rendezvous(
            address=workload.rendezvous_address,
            port=workload.rendezvous_port,
            agent_store=workload.rendezvous_agent_store,
        )
    return DesiredTask(
        task_id=lease.task_id,
        workload_id=workload.pk,
        epoch=lease.epoch,
        index=lease.index,
        action="start",
        rendezvous=rendezvous,
        members=members,
        spec=_spec(lease, workload, secrets),
    )


def _spec(lease: Lease, workload: Workload, secrets: dict[str, str]) -> TaskSpec:
    spec = RunSpec.model_validate(workload.spec)
    kind = kind_of(workload.kind)
    grace_s = kind.stop_grace_s if spec.stop_grace_s is None else spec.stop_grace_s
    is_alone = workload.nodes == 1
    kind_variables = kind.environment(workload_id=workload.pk, index=lease.index)
    return TaskSpec(
        backend=spec.backend,
        argv=list(spec.argv),
        env=_environment(lease, workload, spec, secrets, kind_variables),
        snapshot=workload.snapshot or None,
        environment=workload.environment or None,
        procs=workload.procs,
        world_size=workload.nodes * workload.procs,
        first_rank=lease.index * workload.procs,
        resources=Resources(
            cpu_millis=lease.cpu_millis, memory_bytes=lease.memory_bytes, gpus=lease.gpus
        ),
        gpu_indices=lease.gpu_indices,
        warm=spec.warm or kind.warm if BACKENDS[spec.backend].can_warm else None,
        # Prefixed with the project, so that another tenant's workload cannot name it.
        persistent_key=f"{workload.project_id}/{spec.persistent_key or workload.pk}",
        personal_key=f"{workload.project_id}/{spec.personal_key}" if spec.personal_key else None,
        stop_grace_s=grace_s,
        hang_after_s=spec.hang_after_s or kind.hang_after_s,
        network=cast("NetworkRule", workload.network),
        services=_services(kind_variables) if workload.network == "platform" else [],
        keep_on_fence=lease.keeps_on_fence,
        checkpoint=kind.copies.newest(workload_id=workload.pk) if is_alone else None,
        keep=list(spec.keep),
        keep_limit_bytes=spec.keep_limit_bytes,
        framework=spec.framework,
        copy_limit_bytes=kind.copies.limit_bytes() if is_alone else 0,
        shells=kind.has_shells,
        keep_failed_s=spec.keep_failed_s,
    )


def _services(kind_variables: Mapping[str, str]) -> list[ServiceAddress]:
    """Return the addresses of the platform that a task without network reaches.

    Besides the portal and the gateway these are addresses from its kind, such as the Hub of a
    notebook server: our own variables, none of the project's.
    """
    urls = [settings.SLIPWAY_URL, settings.SLIPWAY_GATEWAY_URL, *kind_variables.values()]
    parts = [urlsplit(url) for url in urls if url.startswith(("http://", "https://"))]
    addresses = {
        (part.hostname, part.port or (443 if part.scheme == "https" else 80))
        for part in parts
        if part.hostname
    }
    return [ServiceAddress(host=host, port=port) for host, port in sorted(addresses)]


def _environment(
    lease: Lease,
    workload: Workload,
    spec: RunSpec,
    secrets: dict[str, str],
    kind_variables: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables of a task. Later ones win, and the platform's own come last."""
    return {
        **secrets,
        **spec.env,
        **kind_variables,
        "SLIPWAY_URL": settings.SLIPWAY_URL,
        "SLIPWAY_TOKEN": token_of(workload.pk, lease.epoch),
        "SLIPWAY_PROJECT": workload.project.slug,
        "SLIPWAY_WORKLOAD": workload.pk,
        "SLIPWAY_ATTEMPT": str(lease.epoch),
    }
