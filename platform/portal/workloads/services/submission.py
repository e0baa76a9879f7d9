"""Submitting a workload: everything that can be refused is refused here, before anything queues."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.models import Environment, Pool, ProjectEnvironment, Tier
from portal.compute.services.pool_accounts import account_name
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_name
from portal.workloads.feasibility import refuse_impossible
from portal.workloads.lifecycle import ENDS, StopOutcome
from portal.workloads.models import Share, Task, Workload
from portal.workloads.ports import AdmissionDeferred, AdmissionRequest, Kind, admission, known_kind
from portal.workloads.services.snapshots import snapshot_of
from portal.workloads.specs import RunSpec
from portal.workloads.transitions import add_event, announce, locked, move
from slipway.schemas.backends import BACKENDS
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import WorkloadState

MAX_NODES = 1024
MAX_PROCS = 256
MAX_WORLD = 65_536
MAX_PRIORITY = 100
MAX_ATTEMPTS = 100
# Levels of workloads: a schedule, its pipeline, a sweep in it, the jobs of the sweep.
MAX_DEPTH = 4
_DIGEST = re.compile(r"\A[0-9a-f]{64}\Z")
_KEY = re.compile(r"\A[\x21-\x7e]{1,128}\Z")


@dataclass(frozen=True)
class WorkloadRequest:
    """Request to run a workload.

    `nodes` is the number of tasks, all placed or none, `procs` the ranks in each. `key` makes the
    submission idempotent within the project: the same key is the same workload. `max_lifetime_s`
    counts from placement and lets the scheduler fill gaps with it. `parent` is the workload that
    this one is a part of. Without a `pool` it runs on the nodes of the installation. One that
    `is_preemptible` costs less, and may be moved for others.
    """

    kind: str
    name: str
    tier: Tier
    spec: RunSpec
    nodes: int = 1
    procs: int = 1
    priority: int = 0
    snapshot: str = ""
    environment: str = ""
    max_attempts: int | None = None
    max_lifetime_s: int | None = None
    key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    parent: Workload | None = None
    pool: Pool | None = None
    is_preemptible: bool = False


def submit_workload(*, project: Project, by: User, spec: WorkloadRequest) -> Workload:
    """Queue a workload, or hold it where the admission says so. Idempotent by `spec.key`.

    Raises InvalidInput for what can never run (and says what is in the way), Conflict for a key
    used for something else, and whatever the admission refuses with.
    """
    kind = known_kind(spec.kind)
    name = clean_name(spec.name)
    _check(spec)
    if spec.is_preemptible and not kind.can_be_preempted:
        raise _invalid_field(
            "preemptible",
            f"A {kind.noun} cannot be preemptible: people wait for it, and it cannot resume from a "
            "checkpoint.",
        )
    _check_references(project, spec)
    refuse_impossible(
        project=project,
        tier=spec.tier,
        tasks=spec.nodes,
        backend=spec.spec.backend,
        python=_python_of(spec),
        pool=spec.pool,
        is_preemptible=spec.is_preemptible,
    )
    if spec.pool is not None:
        account_name(pool=spec.pool, user=by)
    try:
        with transaction.atomic():
            before = _earlier(project, spec)
            if before is not None:
                return before
            return _submit(project, by, kind, name, spec)
    except IntegrityError:
        before = _earlier(project, spec)  # submitted with the same key concurrently
        if before is None:
            raise
        return before


def _submit(
    project: Project, by: User, kind: Kind, name: str, workload_request: WorkloadRequest
) -> Workload:
    _open_shares(project)
    if workload_request.parent is not None:
        _require_parent(project, workload_request.parent)
    workload = _new(project, by, kind, name, workload_request)
    answer = admission().decide(request_of(workload))
    workload.hold = shorten(answer.reason, 300) if isinstance(answer, AdmissionDeferred) else ""
    workload.save(force_insert=True)
    Task.objects.bulk_create(
        Task(workload=workload, index=index) for index in range(workload_request.nodes)
    )
    add_event(workload, kind="submitted", message=f"Submitted by {by.display_name}.")
    audit.record(
        "workload.submit",
        kind="workload",
        target=workload,
        label=workload.name,
        project=project,
        after={
            "kind": kind.name,
            "tier": workload_request.tier.slug,
            "nodes": workload_request.nodes,
        },
    )
    announce(workload)
    if not workload.hold:
        enqueue(workload)
    return workload


def request_of(workload: Workload) -> AdmissionRequest:
    """Return what the admission is asked about a workload."""
    return AdmissionRequest(
        workload_id=workload.pk,
        team_id=workload.team_id or "",
        name=workload.name,
        project_id=workload.project_id,
        user_id=workload.submitted_by_id,
        kind=workload.kind,
        tier=workload.tier.slug,
        tasks=workload.nodes,
        nano_usd_per_hour=workload.price,
        max_lifetime_s=workload.max_lifetime_s,
        is_preemptible=workload.is_preemptible,
    )


def enqueue(workload: Workload) -> None:
    """Enqueue an admitted workload. Call it inside a transaction."""
    if move(workload, WorkloadState.ADMITTED, kind="admitted", message="Admitted.", hold=""):
        move(
            workload,
            WorkloadState.QUEUED,
            kind="queued",
            message="Queued.",
            waits_since=clock.now(),
        )


def _new(
    project: Project, by: User, kind: Kind, name: str, workload_request: WorkloadRequest
) -> Workload:
    amount, parent = workload_request.tier.amount, workload_request.parent
    return Workload(
        project=project,
        team_id=project.team_id,
        kind=kind.name,
        name=name,
        submitted_by=by,
        submit_key=workload_request.key,
        plan=StopOutcome.NONE,
        priority=workload_request.priority,
        is_preemptible=workload_request.is_preemptible,
        tier=workload_request.tier,
        pool=workload_request.pool,
        nodes=workload_request.nodes,
        procs=workload_request.procs,
        cpu_millis=amount.cpu_millis,
        memory_bytes=amount.memory_bytes,
        gpus=amount.gpus,
        gpu_model=workload_request.tier.gpu_model,
        labels=workload_request.tier.labels,
        tags=dict(workload_request.tags),
        parent=parent,
        root=None if parent is None else parent.root or parent,
        backend=workload_request.spec.backend,
        python=_python_of(workload_request),
        spec=workload_request.spec.model_dump(mode="json"),
        snapshot=workload_request.snapshot,
        environment=workload_request.environment,
        max_attempts=workload_request.max_attempts or kind.retry.max_attempts,
        retry_on=sorted(kind.retry.on),
        max_lifetime_s=workload_request.max_lifetime_s,
        waits_since=clock.now(),
    )


def _python_of(workload_request: WorkloadRequest) -> str:
    """Return the Python that a node needs for the environment, empty where that is no matter."""
    if not workload_request.environment:
        return ""
    if not BACKENDS[workload_request.spec.backend].uses_pythons:
        return ""
    # Packages of conda bring their own.
    rows = Environment.objects.filter(digest=workload_request.environment, conda="")
    python = rows.values_list("python", flat=True).first() or ""
    return ".".join(python.split(".")[:2])


def _require_parent(project: Project, parent: Workload) -> None:
    """Raise Conflict unless the workload may have parts: it runs or waits in the same project.

    It stays locked, so that it is not stopped between this and the commit of its new part.
    """
    current = locked(parent.pk)
    assert current is not None  # noqa: S101  (workloads are never deleted)
    assert current.project_id == project.pk  # noqa: S101  (callers look it up in the project)
    if current.status in ENDS or current.plan == StopOutcome.STOP:
        raise Conflict(
            f"{current.name} is {current.state}, so nothing can become a part of it.",
            code="parent_ended",
            field="parent",
            next_step="Leave the parent out, or name a workload that waits or runs.",
        )
    depth, above = 1, current
    while above.parent is not None:
        depth, above = depth + 1, above.parent
    if depth >= MAX_DEPTH:
        raise InvalidInput(
            f"Parts may be nested {MAX_DEPTH} deep.",
            code="too_deep",
            field="parent",
            next_step=f"Name {above.name} as the parent.",
        )


def _open_shares(project: Project) -> None:
    if project.team_id:
        Share.objects.get_or_create(team_id=project.team_id)
    Share.objects.get_or_create(project=project)


def _earlier(project: Project, workload_request: WorkloadRequest) -> Workload | None:
    """Return what was submitted with this key before. Raises Conflict if it was something else."""
    if workload_request.key is None:
        return None
    workload = Workload.objects.filter(project=project, submit_key=workload_request.key).first()
    if workload is None:
        return None
    same = (
        workload.kind == workload_request.kind
        and workload.tier_id == workload_request.tier.pk
        and workload.pool_id == (workload_request.pool and workload_request.pool.pk)
        and workload.is_preemptible == workload_request.is_preemptible
        and workload.parent_id == (workload_request.parent and workload_request.parent.pk)
        and (workload.nodes, workload.procs) == (workload_request.nodes, workload_request.procs)
        and workload.spec == workload_request.spec.model_dump(mode="json")
        and (workload.snapshot, workload.environment)
        == (workload_request.snapshot, workload_request.environment)
    )
    if not same:
        raise Conflict(
            "This key was used to submit something else.",
            code="submit_key_reused",
            field="key",
            next_step="Use a new key for a new workload.",
        )
    return workload


def _check(workload_request: WorkloadRequest) -> None:
    ranges: tuple[tuple[str, int | None, int, int], ...] = (
        ("nodes", workload_request.nodes, 1, MAX_NODES),
        ("procs", workload_request.procs, 1, MAX_PROCS),
        ("priority", workload_request.priority, -MAX_PRIORITY, MAX_PRIORITY),
        ("max_attempts", workload_request.max_attempts, 1, MAX_ATTEMPTS),
        ("max_lifetime_s", workload_request.max_lifetime_s, 1, 365 * 86_400),
    )
    for name, value, least, most in ranges:
        if value is not None and not least <= value <= most:
            raise _invalid_field(name, f"{name} is {value}; it must be from {least} to {most}.")
    if workload_request.nodes * workload_request.procs > MAX_WORLD:
        raise _invalid_field(
            "procs",
            f"{workload_request.nodes * workload_request.procs} ranks are more than {MAX_WORLD}.",
        )
    if not workload_request.tier.is_active:
        raise _invalid_field("tier", f"The tier {workload_request.tier.slug} is no longer offered.")
    if workload_request.key is not None and not _KEY.match(workload_request.key):
        raise _invalid_field("key", "The key must be 1 to 128 visible ASCII characters.")
    if workload_request.snapshot and not _DIGEST.match(workload_request.snapshot):
        raise _invalid_field("snapshot", "The snapshot must be a hex SHA-256.")


def _check_references(project: Project, workload_request: WorkloadRequest) -> None:
    """Refuse what belongs to nobody or to another project, in the same words."""
    if workload_request.environment:
        projectenvironment: Any = ProjectEnvironment.objects.filter(
            project=project, environment__digest=workload_request.environment
        )
        if not projectenvironment.exists():
            raise _invalid_field("environment", "There is no such environment in this project.")
    if workload_request.snapshot and snapshot_of(project, workload_request.snapshot) is None:
        raise _invalid_field("snapshot", "There is no such snapshot in this project.")


def _invalid_field(field: str, message: str) -> InvalidInput:
    return InvalidInput(message, field=field, next_step="Change it and submit again.")
