"""Submitting, quoting, cancelling and cloning jobs."""

from typing import Any

from django.db import transaction

from portal.accounts.models import Project, User
from portal.compute.models import Tier
from portal.compute.services.environments import use_environment
from portal.core.errors import Conflict, InvalidInput, SlipwayError
from portal.training.models import Job, Snapshot
from portal.training.services.snapshots import require_script
from portal.workloads.feasibility import refuse_impossible
from portal.workloads.models import Workload
from portal.workloads.placement import Room
from portal.workloads.scheduling import read_sites
from portal.workloads.services.stopping import stop_workload
from portal.workloads.services.submitting import Wanted, submit_workload
from portal.workloads.specs import RunSpec, spec_from
from slipway.schemas.training import JobEdit, JobIn, Quote

_SECONDS_AN_HOUR = 3600


def submit_job(*, project: Project, by: User, wanted: JobIn, cloned_from: Job | None = None) -> Job:
    """Queue a job. Whatever is wrong is refused here, before anything is queued or charged.

    Raises InvalidInput, naming the field: no such snapshot, script or tier, a tier that can never
    fit, a bad requirement.
    """
    snapshot = _snapshot(project, wanted.snapshot)
    require_script(snapshot, wanted.script)
    tier = _tier(wanted.tier)
    environment = ""
    if wanted.requirements.strip():
        made = use_environment(project=project, by=by, requirements=wanted.requirements)
        environment = made.digest
    with transaction.atomic():
        workload = submit_workload(
            project=project,
            by=by,
            wanted=Wanted(
                kind="job",
                name=wanted.name or _name_of(wanted.script),
                tier=tier,
                spec=_spec(wanted),
                nodes=wanted.nodes,
                procs=wanted.procs,
                priority=wanted.priority,
                snapshot=snapshot.digest,
                environment=environment,
                max_attempts=wanted.max_attempts,
                max_lifetime_s=_lifetime(wanted),
            ),
        )
        return Job.objects.create(
            workload=workload,
            snapshot=snapshot,
            script=wanted.script,
            args=wanted.args,
            params=wanted.params,
            strategy=wanted.strategy or "",
            requirements=wanted.requirements,
            git=wanted.git.model_dump() if wanted.git else None,
            cloned_from=cloned_from,
        )


def quote_job(*, project: Project, wanted: JobIn) -> Quote:
    """Return what a job would cost an hour and whether it could run; nothing is queued."""
    tier = _tier(wanted.tier)
    require_script(_snapshot(project, wanted.snapshot), wanted.script)
    price = tier.nano_usd_per_hour * wanted.nodes
    try:
        refuse_impossible(project=project, tier=tier, tasks=wanted.nodes)
    except SlipwayError as error:
        return Quote(
            nano_usd_per_hour=price,
            can_ever_run=False,
            would_wait=True,
            explanation=error.message,
        )
    ahead = Workload.objects.filter(project=project).queued().count()
    waits = ahead > 0 or not _fits_now(tier, wanted.nodes)
    why = (
        f"{ahead} workloads of this project wait already."
        if ahead
        else "Every node that fits is busy."
        if waits
        else "It can start at once."
    )
    return Quote(nano_usd_per_hour=price, can_ever_run=True, would_wait=waits, explanation=why)


def cancel_job(*, job: Job, by: User) -> Job:
    """End a job. Idempotent."""
    stop_workload(workload=job.workload, by=by)
    job.workload.refresh_from_db()
    return job


def clone_job(*, job: Job, by: User, edit: JobEdit) -> Job:
    """Submit the same again, with changes; what is left out stays as it was."""
    workload = job.workload
    same: dict[str, Any] = {
        "name": workload.name,
        "snapshot": job.snapshot.digest,
        "script": job.script,
        "args": job.args,
        "params": job.params,
        "tier": workload.tier.slug,
        "nodes": workload.nodes,
        "procs": workload.procs,
        "strategy": job.strategy or None,
        "requirements": job.requirements,
        "git": job.git if edit.snapshot is None else None,
        "priority": workload.priority,
        "max_attempts": workload.max_attempts,
        "max_hours": (workload.max_lifetime_s or 0) / _SECONDS_AN_HOUR or None,
    }
    changed = edit.model_dump(exclude_unset=True, exclude_none=True)
    return submit_job(
        project=workload.project,
        by=by,
        wanted=JobIn.model_validate(same | changed),
        cloned_from=job,
    )


def cost_of(workload: Workload, *, until_ms: int) -> int:
    """Return what the leases of a workload have cost so far, in nano-USD, to the millisecond."""
    total = 0
    for lease in workload.leases.all():
        end_ms = int(lease.ended_at.timestamp() * 1000) if lease.ended_at else until_ms
        lasted_ms = max(0, end_ms - int(lease.granted_at.timestamp() * 1000))
        total += lease.nano_usd_per_hour * lasted_ms
    return total // (_SECONDS_AN_HOUR * 1000)


def _spec(wanted: JobIn) -> RunSpec:
    flags = [f"--{name}={value}" for name, value in wanted.params.items()]
    return spec_from(
        argv=("python", wanted.script, *wanted.args, *flags),
        hang_after_s=wanted.hang_after_minutes and wanted.hang_after_minutes * 60,
    )


def _lifetime(wanted: JobIn) -> int | None:
    return int(wanted.max_hours * _SECONDS_AN_HOUR) or 1 if wanted.max_hours else None


def _name_of(script: str) -> str:
    return script.rpartition("/")[2][:100]


def _snapshot(project: Project, digest: str) -> Snapshot:
    found = Snapshot.objects.filter(project=project, digest=digest)
    snapshot = found.select_related("file__blob").first()
    if snapshot is None:
        raise InvalidInput(
            "There is no such snapshot in this project.",
            code="no_such_snapshot",
            field="snapshot",
            next_step="Upload the code first (`slipway train` does).",
        )
    return snapshot


def _tier(slug: str | None) -> Tier:
    offered = Tier.objects.filter(is_active=True)
    if slug is None:
        cheapest = offered.order_by("nano_usd_per_hour", "slug").first()
        if cheapest is None:
            raise Conflict(
                "No hardware tier is offered yet.",
                code="no_tiers",
                next_step="Ask an administrator to join a node or add a tier.",
            )
        return cheapest
    tier = offered.filter(slug=slug).first()
    if tier is None:
        names = ", ".join(offered.order_by("slug").values_list("slug", flat=True)[:10])
        raise InvalidInput(
            f"There is no tier {slug}.",
            code="no_such_tier",
            field="tier",
            next_step=f"Tiers: {names}." if names else "Ask an administrator to add a tier.",
        )
    return tier


def _fits_now(tier: Tier, tasks: int) -> bool:
    """Whether enough nodes have room for the tasks at this moment."""
    return Room(read_sites()).count_of(tier.need) >= tasks
