"""Submitting, quoting, cancelling and cloning jobs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from portal.accounts.models import Project, User
from portal.compute.engines import engine_label
from portal.compute.models import Pool, Tier
from portal.compute.services.pool_accounts import account_name
from portal.compute.services.pools import usable_pool
from portal.compute.services.tiers import offered_tier
from portal.core.errors import Conflict, InvalidInput, SlipwayError
from portal.datasets.models import Version
from portal.datasets.services.datasets import resolve
from portal.datasets.services.uses import record_use
from portal.training.job_package_set import JobPackages
from portal.training.job_specs import (
    PYTHON,
    S_A_MINUTE,
    PlatformCommand,
    check_ranks,
    script_ranks,
    spec_of,
)
from portal.training.keep_failed import check_keep_failed, refuse_to_keep_failed
from portal.training.kept_files import rule_text
from portal.training.models import Job
from portal.training.services.job_packages import environment_digest, job_packages
from portal.training.services.snapshots import no_such_snapshot, require_script, snapshot_of
from portal.workloads.feasibility import OTHER_PROJECT, need_of, refuse_impossible
from portal.workloads.growth_reasons import growth_estimate
from portal.workloads.models import Workload
from portal.workloads.placement import Capacity
from portal.workloads.ports import AdmissionRequest
from portal.workloads.scheduling import read_sites
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.resume import resume_workload
from portal.workloads.services.submission import WorkloadRequest, submit_workload
from portal.workloads.specs import RunSpec
from slipway.schemas.environments import INSTALLATION
from slipway.schemas.training import JobEdit, JobIn, Quote
from slipway.schemas.truncation import shorten_name

_S_AN_HOUR = 3600
_NAME_CHARACTERS = 100


def submit_job(
    *,
    project: Project,
    by: User,
    requested: JobIn,
    cloned_from: Job | None = None,
    variables: Mapping[str, str] | None = None,
    program: PlatformCommand | None = None,
) -> Job:
    """Queue a job. Whatever is wrong is refused here, before anything is queued or charged.

    `variables` are environment variables that its schedule sets, which no clone of it has.
    `program` is a program of the platform that runs in place of the script.
    Raises InvalidInput, naming the field: no such snapshot, script or tier, a tier that can never
    fit, a strategy that does not, a bad requirement.
    """
    check_ranks(requested)
    check_keep_failed(requested)
    spec_of(requested)
    snapshot = snapshot_of(project, requested.snapshot)
    if snapshot is None:
        raise no_such_snapshot()
    require_script(snapshot, requested.script, ranks=script_ranks(requested))
    packages = job_packages(project, requested, snapshot)
    spec = spec_of(requested, packages.python_path)
    if program is not None:
        spec = spec.model_copy(update={"argv": (program.command,), "warm": program.warm})
    tier = offered_tier(requested.tier)
    pool = usable_pool(project, requested.pool)
    versions = _versions(project, requested)
    parent = _parent(project, requested.parent)
    with transaction.atomic():
        workload = submit_workload(
            project=project,
            by=by,
            spec=WorkloadRequest(
                kind="job",
                name=requested.name or _name_of(requested.script),
                tier=tier,
                spec=spec,
                nodes=requested.nodes,
                procs=requested.procs,
                priority=requested.priority,
                snapshot=snapshot.digest,
                environment=environment_digest(project, by, packages, cloned_from),
                max_attempts=requested.max_attempts,
                max_lifetime_s=_lifetime(requested),
                tags=requested.tags,
                parent=parent,
                pool=pool,
                is_preemptible=requested.preemptible,
            ),
        )
        for version in versions:
            record_use(version=version, by=by, workload=workload, declared=True)
        return Job.objects.create(
            workload=workload,
            created_at=workload.created_at,
            snapshot=snapshot,
            script=requested.script,
            args=requested.args,
            params=requested.params,
            strategy=requested.strategy or "",
            requirements=requested.requirements or packages.requirements,
            requirements_file=packages.file,
            finds_requirements=requested.requirements is None
            and requested.requirements_file is None
            and requested.environment is None,
            environment_version=packages.version,
            python=requested.python or "",
            git=requested.git.model_dump() if requested.git else None,
            datasets=[version.reference for version in versions],
            variables=dict(variables) if variables else None,
            cloned_from=cloned_from,
        )


def quote_job(*, project: Project, spec: JobIn) -> Quote:
    """Return what a job would cost an hour and whether it could run. Nothing is queued.

    The snapshot may come later. When it is there already, the script must be in it.
    """
    spec_of(spec)
    check_ranks(spec)
    check_keep_failed(spec)
    _versions(project, spec)
    snapshot = snapshot_of(project, spec.snapshot)
    if snapshot is not None:
        require_script(snapshot, spec.script, ranks=script_ranks(spec))
    packages = job_packages(project, spec, snapshot)
    is_known = snapshot is not None or spec.requirements or spec.environment
    if not is_known and packages.version is not None:
        explanation = f"Unless the code has requirements files: {packages.explanation}"
        packages = replace(packages, explanation=explanation)
    shown = packages.as_schema() if is_known or packages.version is not None else None
    tier = offered_tier(spec.tier)
    pool = usable_pool(project, spec.pool)
    price = tier.price(is_preemptible=spec.preemptible, pool=pool) * spec.nodes
    full_price = tier.price(pool=pool) * spec.nodes
    files = rule_text(spec.keep, spec.keep_limit_bytes)
    try:
        refuse_impossible(
            project=project,
            tier=tier,
            tasks=spec.nodes,
            backend=spec.backend,
            python=packages.node_python,
            pool=pool,
            is_preemptible=spec.preemptible,
        )
    except SlipwayError as error:
        return Quote(
            nano_usd_per_hour=price,
            full_nano_usd_per_hour=full_price,
            can_ever_run=False,
            would_wait=True,
            explanation=f"{error.message} {error.next_step or ''}".strip(),
            files=files,
            packages=shown,
        )
    waits, why = _estimate_wait(project, tier, spec, packages.node_python, pool)
    return Quote(
        nano_usd_per_hour=price,
        full_nano_usd_per_hour=full_price,
        can_ever_run=True,
        would_wait=waits,
        explanation=why,
        files=files,
        packages=shown,
    )


def settled_job(
    *, project: Project, by: User, requested: JobIn, may_be_kept: bool = False
) -> JobIn:
    """Return a submission with its defaults settled: name, tier, versions of datasets, environment.

    It can be submitted many times and means the same each time. Unless it `may_be_kept`, a request
    to keep it after a failure is refused. Raises InvalidInput as `submit_job` does, and queues
    nothing.
    """
    spec_of(requested)
    check_ranks(requested)
    if may_be_kept:
        check_keep_failed(requested)
    else:
        refuse_to_keep_failed(requested)
    snapshot = snapshot_of(project, requested.snapshot)
    if snapshot is None:
        raise no_such_snapshot()
    require_script(snapshot, requested.script, ranks=script_ranks(requested))
    packages = job_packages(project, requested, snapshot)
    tier = offered_tier(requested.tier)
    _parent(project, requested.parent)
    pool = usable_pool(project, requested.pool)
    refuse_impossible(
        project=project,
        tier=tier,
        tasks=requested.nodes,
        backend=requested.backend,
        python=packages.node_python,
        pool=pool,
        is_preemptible=requested.preemptible,
    )
    if pool is not None:
        account_name(pool=pool, user=by)
    return requested.model_copy(
        update={
            "name": requested.name or _name_of(requested.script),
            "tier": tier.slug,
            "datasets": [version.reference for version in _versions(project, requested)],
            **_settled_environment(requested, packages),
        }
    )


def _settled_environment(requested: JobIn, packages: JobPackages) -> dict[str, Any]:
    """Return the version that a name or the project's default stands for at present, and Python."""
    if packages.version is not None:
        return {"environment": packages.version.reference}
    python = packages.python if packages.chooses_python else requested.python
    settled = {"environment": requested.environment, "python": python}
    names_some = requested.requirements is not None or requested.requirements_file is not None
    has_own = packages.requirements or packages.python_path or packages.has_own_python
    if requested.environment or names_some or has_own:
        return settled
    if packages.needs_environment:  # one with this Python and without packages
        return settled | {"requirements": ""}
    return settled | {"environment": INSTALLATION}


def admission_request(*, project: Project, by: User, spec: JobIn) -> AdmissionRequest:
    """Return what the admission would be asked about such a job. Raises InvalidInput."""
    tier = offered_tier(spec.tier)
    pool = usable_pool(project, spec.pool)
    return AdmissionRequest(
        workload_id="",
        team_id=project.team_id or "",
        name=spec.name or _name_of(spec.script),
        project_id=project.pk,
        user_id=by.pk,
        kind="job",
        tier=tier.slug,
        tasks=spec.nodes,
        nano_usd_per_hour=tier.price(is_preemptible=spec.preemptible, pool=pool) * spec.nodes,
        max_lifetime_s=_lifetime(spec),
        is_preemptible=spec.preemptible,
    )


def cancel_job(*, job: Job, by: User) -> Job:
    """End a job. Idempotent."""
    stop_workload(workload=job.workload, by=by)
    return job


def resume_job(*, job: Job, by: User) -> Job:
    """Resume a job that a budget stopped, from its checkpoint. Raises Conflict otherwise."""
    resume_workload(workload=job.workload, by=by)
    return job


def clone_job(*, job: Job, by: User, edit: JobEdit) -> Job:
    """Submit the same again, with changes. What is left out stays as it was.

    Raises Conflict for a job that runs a program of the platform.
    """
    _require_own_script(job)
    changed = edit.model_dump(exclude_unset=True, exclude_none=True)
    return submit_job(
        project=job.workload.project,
        by=by,
        requested=JobIn.model_validate(_same_submission(job, edit) | changed),
        cloned_from=job,
    )


def job_request(job: Job) -> JobIn:
    """Return the submission of a job, to submit the same again while nobody waits for it.

    Raises Conflict for a job that runs a program of the platform.
    """
    _require_own_script(job)
    request = JobIn.model_validate(_same_submission(job, JobEdit()))
    return request.model_copy(update={"keep_failed_minutes": 0})


def _require_own_script(job: Job) -> None:
    if RunSpec.model_validate(job.workload.spec).argv[0] != PYTHON:
        raise Conflict(
            "This job runs a program of Slipway, which only its own page can start.",
            code="platform_program",
            next_step="Start a batch prediction again: slipway model predict MODEL --data DATASET.",
        )


def _same_submission(job: Job, edit: JobEdit) -> dict[str, Any]:
    workload = job.workload
    spec = RunSpec.model_validate(workload.spec)
    return {
        "name": workload.name,
        "snapshot": job.snapshot.digest,
        "script": job.script,
        "args": job.args,
        "params": job.params,
        "tier": workload.tier.slug,
        "pool": workload.pool and workload.pool.name,
        "nodes": workload.nodes,
        "procs": workload.procs,
        "strategy": job.strategy or None,
        "framework": spec.framework,
        "backend": workload.backend,
        **_same_requirements(job, edit),
        # Another environment has its own; files of the code are read again.
        "python": None if edit.environment is not None else job.python or None,
        "datasets": job.datasets,
        "tags": workload.tags,
        "git": job.git if edit.snapshot is None else None,
        "priority": workload.priority,
        "max_attempts": workload.max_attempts,
        "preemptible": workload.is_preemptible,
        "max_hours": workload.max_lifetime_s and workload.max_lifetime_s / _S_AN_HOUR,
        "keep": list(spec.keep),
        "keep_limit_bytes": spec.keep_limit_bytes,
        "hang_after_minutes": spec.hang_after_s and round(spec.hang_after_s / S_A_MINUTE),
        "keep_failed_minutes": spec.keep_failed_s // S_A_MINUTE,
    }


def _same_requirements(job: Job, edit: JobEdit) -> dict[str, str]:
    """Return where the packages of a job came from. New code is searched as the first one was."""
    if edit.environment is not None or (job.finds_requirements and edit.snapshot is not None):
        return {}
    if job.environment_version is not None:
        return {"environment": job.environment_version.reference}
    if job.requirements_file:
        return {"requirements_file": job.requirements_file}
    return {"requirements": job.requirements}


def _versions(project: Project, requested: JobIn) -> list[Version]:
    """Return the versions a job names, one of each dataset."""
    versions = [resolve(project=project, reference=dataset) for dataset in requested.datasets]
    if len({version.dataset_id for version in versions}) != len(versions):
        raise InvalidInput(
            "A dataset is listed twice.",
            field="datasets",
            next_step="List one version of each; a job can fetch others while it runs.",
        )
    return versions


def _lifetime(requested: JobIn) -> int | None:
    return max(1, round(requested.max_hours * _S_AN_HOUR)) if requested.max_hours else None


def _name_of(script: str) -> str:
    return shorten_name(script.rpartition("/")[2], _NAME_CHARACTERS)


def _parent(project: Project, workload_id: str | None) -> Workload | None:
    """Return the workload that a job is a part of. Raises InvalidInput if there is none."""
    if workload_id is None:
        return None
    workload = Workload.objects.filter(project=project, pk=workload_id).first()
    if workload is None:
        raise InvalidInput(
            f"There is no workload {workload_id} in project {project.slug}.",
            code="no_such_parent",
            field="parent",
            next_step="Name the id of a job that waits or runs, as `slipway job list` shows it.",
        )
    return workload


def _estimate_wait(
    project: Project, tier: Tier, requested: JobIn, python: str, pool: Pool | None
) -> tuple[bool, str]:
    """Return whether a job submitted now would wait, and why."""
    queued = Workload.objects.queued().filter(project=project, pool=pool)
    ahead = queued.filter(priority__gte=requested.priority).count()
    if ahead:
        verb = "waits" if ahead == 1 else "wait"
        return True, f"{ahead} of this project {verb} ahead of it."
    if pool is not None:
        engine = engine_label(pool.engine)
        return True, f"{engine} decides when it starts in pool {pool.name}."
    need = need_of(project, tier, backend=requested.backend, python=python)
    room = Capacity(read_sites(project))
    fitting = room.count_of(need, project=project.pk)
    if fitting >= requested.nodes:
        return False, "It can start immediately."
    if grown := growth_estimate(project, need, requested.nodes):
        return True, grown
    if room.count_of(need) >= requested.nodes:
        return True, OTHER_PROJECT
    if requested.nodes == 1:
        return True, f"Every node that fits tier {tier.slug} is busy."
    return (
        True,
        f"It needs {requested.nodes} nodes of tier {tier.slug} at once; {fitting} are free.",
    )
