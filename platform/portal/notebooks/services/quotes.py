"""Price quote of a notebook server, and whether it could start now."""

from portal.accounts.models import Project, User
from portal.compute.engines import engine_label
from portal.compute.models import Pool, Tier
from portal.compute.services.pools import usable_pool
from portal.compute.services.tiers import offered_tier
from portal.core.errors import SlipwayError
from portal.notebooks.environments import chosen_version, describe_packages
from portal.notebooks.kinds import KIND
from portal.notebooks.services.servers import lifetime_of
from portal.workloads.feasibility import OTHER_PROJECT, need_of, refuse_impossible
from portal.workloads.growth_reasons import growth_estimate
from portal.workloads.models import Workload
from portal.workloads.placement import Capacity
from portal.workloads.ports import AdmissionRequest
from portal.workloads.scheduling import read_sites
from portal.workloads.services.relay import require_relay
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.notebook_servers import ServerIn
from slipway.schemas.training import Quote


def quote_server(*, project: Project, spec: ServerIn) -> Quote:
    """Return what a server costs an hour and whether it would wait. Nothing is queued."""
    tier = offered_tier(spec.tier)
    pool = usable_pool(project, spec.pool)
    price = tier.price(pool=pool)
    version = chosen_version(
        project=project, requirements=spec.requirements, reference=spec.environment
    )
    packages = describe_packages(
        requirements=spec.requirements, reference=spec.environment, version=version
    )
    python = "" if packages.is_installed else packages.python
    try:
        require_relay(pool)
        refuse_impossible(
            project=project, tier=tier, tasks=1, backend=DEFAULT_BACKEND, python=python, pool=pool
        )
    except SlipwayError as error:
        message = f"{error.message} {error.next_step or ''}".strip()
        return Quote(
            nano_usd_per_hour=price,
            can_ever_run=False,
            would_wait=True,
            explanation=message,
            packages=packages,
        )
    waits, why = _estimate_wait(project, tier, python, pool)
    return Quote(
        nano_usd_per_hour=price,
        can_ever_run=True,
        would_wait=waits,
        explanation=why,
        packages=packages,
    )


def admission_request(*, project: Project, by: User, spec: ServerIn) -> AdmissionRequest:
    """Return what the admission would be asked about such a server. Raises InvalidInput."""
    tier = offered_tier(spec.tier)
    return AdmissionRequest(
        workload_id="",
        team_id=project.team_id or "",
        name=spec.name,
        project_id=project.pk,
        user_id=by.pk,
        kind=KIND,
        tier=tier.slug,
        tasks=1,
        nano_usd_per_hour=tier.price(pool=usable_pool(project, spec.pool)),
        max_lifetime_s=lifetime_of(spec),
    )


def _estimate_wait(
    project: Project, tier: Tier, python: str, pool: Pool | None
) -> tuple[bool, str]:
    queued = Workload.objects.queued().filter(project=project, pool=pool)
    ahead = queued.filter(priority__gte=0).count()
    if ahead:
        verb = "waits" if ahead == 1 else "wait"
        return True, f"{ahead} of this project {verb} ahead of it."
    if pool is not None:
        return True, f"{engine_label(pool.engine)} decides when it starts in pool {pool.name}."
    need = need_of(project, tier, backend=DEFAULT_BACKEND, python=python)
    room = Capacity(read_sites(project))
    if room.count_of(need, project=project.pk):
        return False, "It can start immediately."
    if grown := growth_estimate(project, need, 1):
        return True, grown
    if room.count_of(need):
        return True, OTHER_PROJECT
    return True, f"Every node that fits tier {tier.slug} is busy."
