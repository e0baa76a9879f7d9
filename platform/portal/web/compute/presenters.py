"""Presenters of pools: use, allocations with their state and reason, projects."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, QuerySet

from portal.accounts.principal import Principal
from portal.compute.models import Pool, PoolProject
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.base.urls_for import url_of_workload
from portal.workloads.lifecycle import ACTIVE, AllocationState
from portal.workloads.models import Allocation, Workload
from portal.workloads.ports import kind_of

ALLOCATIONS_SHOWN = 200
_PROJECTS_SHOWN = 3


@dataclass(frozen=True)
class PoolRow:
    """A pool in the list. `projects` are slugs, and `more_projects` counts those left out."""

    pool: Pool
    requests: int
    waiting: int
    projects: Sequence[str] = ()
    more_projects: int = 0


@dataclass(frozen=True)
class AllocationRow:
    """An allocation in flight. `url` is empty for projects without the person."""

    allocation: Allocation
    label: str
    url: str
    state: str
    tone: str


def pool_rows(pools: Sequence[Pool]) -> list[PoolRow]:
    """Return the rows of pools, with a fixed number of queries."""
    requests = _counts(Allocation.objects.open().filter(pool__in=pools))
    waiting = _counts(Workload.objects.queued().filter(pool__in=pools))
    slugs: dict[str, list[str]] = {}
    allowed = PoolProject.objects.filter(pool__in=pools).order_by("project__slug")
    for pool_id, slug in allowed.values_list("pool_id", "project__slug"):
        slugs.setdefault(pool_id, []).append(slug)
    return [
        PoolRow(
            pool,
            requests[pool.pk],
            waiting[pool.pk],
            slugs.get(pool.pk, [])[:_PROJECTS_SHOWN],
            max(0, len(slugs.get(pool.pk, [])) - _PROJECTS_SHOWN),
        )
        for pool in pools
    ]


def allocation_rows(pool: Pool, principal: Principal) -> Shortlist[AllocationRow]:
    """Return what a pool has in flight. Of other projects an administrator sees only the kind."""
    allocations = Allocation.objects.open().filter(pool=pool).select_related("workload__project")
    shown = shortlist(allocations.order_by("pk"), ALLOCATIONS_SHOWN)
    live = set(principal.projects().live().values_list("pk", flat=True))
    return shown.replaced_by(_allocation_row(allocation, live) for allocation in shown)


def workload_label(workload: Workload, live: set[str]) -> tuple[str, str]:
    """Return a workload's label and URL; only its kind if its project is not among `live`."""
    noun = kind_of(workload.kind).noun
    if workload.project_id not in live:
        return f"another project's {noun}", ""
    url = url_of_workload(workload.project.slug, workload.pk)
    return f"{workload.name}, a {noun} of {workload.project.name}", url


def _allocation_row(allocation: Allocation, live: set[str]) -> AllocationRow:
    label, url = workload_label(allocation.workload, live)
    state, tone = _state_of(allocation)
    return AllocationRow(allocation, label, url, state, tone)


def _state_of(allocation: Allocation) -> tuple[str, str]:
    """Return the state of an allocation that has not ended, and its tone."""
    if allocation.state == AllocationState.ORDERED:
        return "submitting", ""
    if allocation.stopped_at is not None:
        return "stopping", "warn"
    workload = allocation.workload
    if workload.status in ACTIVE and workload.epoch == allocation.epoch:
        return "running", "ok"
    return ("waiting", "") if allocation.detail else ("starting", "strong")


def _counts(rows: QuerySet[Allocation] | QuerySet[Workload]) -> Counter[str]:
    counts = rows.order_by().values("pool_id").annotate(count=Count("pk"))
    return Counter({row["pool_id"]: row["count"] for row in counts})
