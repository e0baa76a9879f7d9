"""Submitting a workload: everything that can be refused is refused here, before anything queues."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.models import ProjectEnvironment, Tier
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_name
from portal.workloads.feasibility import refuse_impossible
from portal.workloads.lifecycle import StopOutcome
from portal.workloads.models import Share, Task, Workload
from portal.workloads.ports import AdmissionDeferred, AdmissionRequest, Kind, admission, known_kind
from portal.workloads.services.snapshots import snapshot_of
from portal.workloads.specs import RunSpec
from portal.workloads.transitions import add_event, announce, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import WorkloadState

MAX_NODES = 1024
MAX_PROCS = 256
MAX_WORLD = 65_536
MAX_PRIORITY = 100
MAX_ATTEMPTS = 100
_DIGEST = re.compile(r"\A[0-9a-f]{64}\Z")
_KEY = re.compile(r"\A[\x21-\x7e]{1,128}\Z")


@dataclass(frozen=True)
class WorkloadRequest:
    """What somebody wants to run.

    `nodes` is the number of tasks, all placed or none; `procs` the ranks in each. `key` makes the
    submission idempotent within the project: the same key is the same workload. `max_lifetime_s`
    counts from placement and lets the scheduler fill gaps with it.
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


def submit_workload(*, project: Project, by: User, wanted: WorkloadRequest) -> Workload:
    """Queue a workload, or hold it where the admission says so; idempotent by `wanted.key`.

    Raises InvalidInput for what can never run (and says what is in the way), Conflict for a key
    used for something else, and whatever the admission refuses with.
    """
    kind = known_kind(wanted.kind)
    name = clean_name(wanted.name)
    _check(wanted)
    _check_references(project, wanted)
    refuse_impossible(
        project=project, tier=wanted.tier, tasks=wanted.nodes, backend=wanted.spec.backend
    )
    try:
        with transaction.atomic():
            before = _earlier(project, wanted)
            if before is not None:
                return before
            return _submit(project, by, kind, name, wanted)
    except IntegrityError:
        before = _earlier(project, wanted)  # somebody submitted with the same key meanwhile
        if before is None:
            raise
        return before


def _submit(project: Project, by: User, kind: Kind, name: str, wanted: WorkloadRequest) -> Workload:
    _open_shares(project)
    workload = _new(project, by, kind, name, wanted)
    answer = admission().ask(request_of(workload))
    workload.hold = shorten(answer.why, 300) if isinstance(answer, AdmissionDeferred) else ""
    workload.save(force_insert=True)
    Task.objects.bulk_create(Task(workload=workload, index=index) for index in range(wanted.nodes))
    add_event(workload, kind="submitted", message=f"Submitted by {by.display_name}.")
    audit.record(
        "workload.submit",
        kind="workload",
        target=workload,
        label=workload.name,
        project=project,
        after={"kind": kind.name, "tier": wanted.tier.slug, "nodes": wanted.nodes},
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
        nano_usd_per_hour=workload.tier.nano_usd_per_hour * workload.nodes,
        max_lifetime_s=workload.max_lifetime_s,
    )


def enqueue(workload: Workload) -> None:
    """Let an admitted workload queue. Call it inside a transaction."""
    if move(workload, WorkloadState.ADMITTED, kind="admitted", message="Admitted.", hold=""):
        move(
            workload,
            WorkloadState.QUEUED,
            kind="queued",
            message="Queued.",
            waits_since=clock.now(),
        )


def _new(project: Project, by: User, kind: Kind, name: str, wanted: WorkloadRequest) -> Workload:
    amount = wanted.tier.amount
    return Workload(
        project=project,
        team_id=project.team_id,
        kind=kind.name,
        name=name,
        submitted_by=by,
        submit_key=wanted.key,
        plan=StopOutcome.NONE,
        priority=wanted.priority,
        tier=wanted.tier,
        nodes=wanted.nodes,
        procs=wanted.procs,
        cpu_millis=amount.cpu_millis,
        memory_bytes=amount.memory_bytes,
        gpus=amount.gpus,
        gpu_model=wanted.tier.gpu_model,
        labels=wanted.tier.labels,
        tags=dict(wanted.tags),
        backend=wanted.spec.backend,
        spec=wanted.spec.model_dump(mode="json"),
        snapshot=wanted.snapshot,
        environment=wanted.environment,
        max_attempts=wanted.max_attempts or kind.retry.max_attempts,
        retry_on=sorted(kind.retry.on),
        max_lifetime_s=wanted.max_lifetime_s,
        waits_since=clock.now(),
    )


def _open_shares(project: Project) -> None:
    if project.team_id:
        Share.objects.get_or_create(team_id=project.team_id)
    Share.objects.get_or_create(project=project)


def _earlier(project: Project, wanted: WorkloadRequest) -> Workload | None:
    """Return what was submitted with this key before; raises Conflict if it was something else."""
    if wanted.key is None:
        return None
    found = Workload.objects.filter(project=project, submit_key=wanted.key).first()
    if found is None:
        return None
    same = (
        found.kind == wanted.kind
        and found.tier_id == wanted.tier.pk
        and (found.nodes, found.procs) == (wanted.nodes, wanted.procs)
        and found.spec == wanted.spec.model_dump(mode="json")
        and (found.snapshot, found.environment) == (wanted.snapshot, wanted.environment)
    )
    if not same:
        raise Conflict(
            "This key was used to submit something else.",
            code="submit_key_reused",
            field="key",
            next_step="Use a new key for a new workload.",
        )
    return found


def _check(wanted: WorkloadRequest) -> None:
    ranges: tuple[tuple[str, int | None, int, int], ...] = (
        ("nodes", wanted.nodes, 1, MAX_NODES),
        ("procs", wanted.procs, 1, MAX_PROCS),
        ("priority", wanted.priority, -MAX_PRIORITY, MAX_PRIORITY),
        ("max_attempts", wanted.max_attempts, 1, MAX_ATTEMPTS),
        ("max_lifetime_s", wanted.max_lifetime_s, 1, 365 * 86_400),
    )
    for name, value, least, most in ranges:
        if value is not None and not least <= value <= most:
            raise _bad(name, f"{name} is {value}; it must be from {least} to {most}.")
    if wanted.nodes * wanted.procs > MAX_WORLD:
        raise _bad("procs", f"{wanted.nodes * wanted.procs} ranks are more than {MAX_WORLD}.")
    if not wanted.tier.is_active:
        raise _bad("tier", f"The tier {wanted.tier.slug} is no longer offered.")
    if wanted.key is not None and not _KEY.match(wanted.key):
        raise _bad("key", "The key must be 1 to 128 visible ASCII characters.")
    if wanted.snapshot and not _DIGEST.match(wanted.snapshot):
        raise _bad("snapshot", "The snapshot must be a hex SHA-256.")


def _check_references(project: Project, wanted: WorkloadRequest) -> None:
    """Refuse what belongs to nobody or to another project, in the same words."""
    if wanted.environment:
        mine: Any = ProjectEnvironment.objects.filter(
            project=project, environment__digest=wanted.environment
        )
        if not mine.exists():
            raise _bad("environment", "There is no such environment in this project.")
    if wanted.snapshot and snapshot_of(project, wanted.snapshot) is None:
        raise _bad("snapshot", "There is no such snapshot in this project.")


def _bad(field: str, message: str) -> InvalidInput:
    return InvalidInput(message, field=field, next_step="Change it and submit again.")
