"""Spend for display, on pages and by the API alike: ids become names, shares are sorted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.compute.lifecycle import MachineUse
from portal.compute.models import Tier
from portal.core import clock
from portal.spend.admission import quoted
from portal.spend.cost_by_tag import LABELS_SHOWN
from portal.spend.forecasts import forecast_of
from portal.spend.idle import IdleUsage, NodeIdle, idle_of_nodes, idle_tasks
from portal.spend.models.ledger import KIND_CAPACITY, KIND_STORAGE, TAG
from portal.spend.overhead import UseTotal, overhead_of_groups
from portal.spend.queries import RUNS_SHOWN, Scope, SpendBreakdown, spending_of
from portal.spend.windows import MONTH, window_of
from portal.workloads.models import Workload
from portal.workloads.ports import AdmissionRequest, groupings
from slipway.schemas.spend import (
    BudgetRemainder,
    DayOut,
    ExpectedCost,
    ForecastOut,
    GroupCostOut,
    GroupOverheadOut,
    IdleOut,
    MachineCostDayOut,
    OverheadOut,
    RunCostOut,
    ShareOut,
    SpendOut,
    StoredOut,
)
from slipway.schemas.training import Quote

_STORED = "stored:"
_NOBODY = "Unassigned"


def visible_scope(principal: Principal) -> Scope:
    """Return the scope of all projects visible to a person."""
    return Scope(projects=tuple(principal.projects().live().values_list("pk", flat=True)))


def present_spend(scope: Scope, window: str, *, with_runs: bool = True) -> SpendOut:
    """Return a window's spend for display. Raises InvalidInput for an unknown window."""
    timestamp = clock.now()
    requested = window_of(window, timestamp)
    spending = spending_of(scope, requested, with_runs=with_runs)
    names = _Names(spending)
    runs = _runs(spending, names)
    return SpendOut(
        window=requested.name,
        begin=requested.begin,
        end=requested.end,
        as_of=spending.as_of,
        nano_usd=spending.nano_usd,
        nano_usd_per_hour=spending.nano_usd_per_hour,
        by_project=_shares(spending.by_project, names.projects),
        by_person=_shares(spending.by_person, names.people),
        by_tier=_shares(spending.by_tier, names.tiers),
        by_kind=_shares(spending.by_kind, {}),
        by_day=[
            DayOut(day=day, nano_usd=spending.by_day[day])
            for day in requested.days
            if day <= timestamp.date()
        ],
        runs=runs,
        runs_left_out_nano_usd=_other_runs(spending, runs) if with_runs else 0,
        by_tag=[
            ShareOut(id=key, name=key, nano_usd=nano_usd)
            for (_, part, key), nano_usd in spending.by_label.most_common()
            if part == TAG
        ][:LABELS_SHOWN],
        are_tags_left_out=_has_more(spending, TAG),
        groups=_groups(scope, spending, names),
        groups_left_out=[kind for kind in groupings() if _has_more(spending, kind)],
        stored=_stored(spending, names),
        stored_left_out=len(spending.stored[RUNS_SHOWN:]),
        forecast=_forecast(scope, spending, timestamp),
    )


def _forecast(scope: Scope, spending: SpendBreakdown, timestamp: datetime) -> ForecastOut | None:
    if spending.window.name != window_of(MONTH, timestamp).name:
        return None
    forecast = forecast_of(scope, timestamp, spent_nano_usd=spending.nano_usd)
    return None if forecast is None else ForecastOut.model_validate(forecast)


class _Names:
    """Display names of people, projects and tiers in some figures."""

    def __init__(self, spending: SpendBreakdown) -> None:
        projects, people = set(spending.by_project), set(spending.by_person)
        projects |= {running_cost.of.project for running_cost in spending.stored}
        self.projects = dict(Project.objects.filter(pk__in=projects).values_list("pk", "slug"))
        self.people = dict(User.objects.filter(pk__in=people).values_list("pk", "email"))
        self.tiers = dict(
            Tier.objects.filter(pk__in=set(spending.by_tier)).values_list("pk", "slug")
        )
        self.tiers |= {
            tier: f"{tier.removeprefix(_STORED)} (stored)"
            for tier in spending.by_tier
            if tier.startswith(_STORED)
        }
        ids = [running_cost for running_cost, _ in spending.by_run.most_common(RUNS_SHOWN)]
        self.workloads = dict(Workload.objects.filter(pk__in=ids).values_list("pk", "name"))


def _shares(split: Counter[str], names: Mapping[str, str]) -> list[ShareOut]:
    return [
        ShareOut(id=key, name=names.get(key, key or _NOBODY), nano_usd=nano_usd)
        for key, nano_usd in split.most_common()
        if nano_usd
    ]


def _runs(spending: SpendBreakdown, names: _Names) -> list[RunCostOut]:
    return [
        RunCostOut(
            workload=workload,
            name=names.workloads.get(workload, workload),
            kind=spending.runs[workload].kind,
            project=names.projects.get(spending.runs[workload].project, ""),
            person=names.people.get(spending.runs[workload].person, ""),
            tier=names.tiers.get(spending.runs[workload].tier, ""),
            nano_usd=nano_usd,
            nano_usd_per_hour=spending.run_rates[workload],
        )
        for workload, nano_usd in spending.by_run.most_common(RUNS_SHOWN)
    ]


def _other_runs(spending: SpendBreakdown, shown: Sequence[RunCostOut]) -> int:
    """Return the cost of the runs that are not shown."""
    others = (KIND_CAPACITY, KIND_STORAGE)
    all_runs = sum(cost for kind, cost in spending.by_kind.items() if kind not in others)
    return all_runs - sum(run.nano_usd for run in shown)


def _has_more(spending: SpendBreakdown, requested: str) -> bool:
    return sum(part == requested for _, part, _ in spending.by_label) > LABELS_SHOWN


def _groups(scope: Scope, spending: SpendBreakdown, names: _Names) -> list[GroupCostOut]:
    """Return the top experiments and endpoints by cost, with the cost per 1,000 units of work."""
    window, group_costs = spending.window, []
    for kind, grouping in groupings().items():
        dear = [
            (project, key, nano_usd)
            for (project, part, key), nano_usd in spending.by_label.most_common()
            if part == kind
        ][:LABELS_SHOWN]
        done = (
            grouping.work_done(projects=scope.projects, first=window.first, last=window.last)
            if dear and grouping.work
            else {}
        )
        for project, key, nano_usd in dear:
            count = done.get((project, key), 0) if grouping.work else None
            group_costs.append(
                GroupCostOut(
                    kind=kind,
                    noun=grouping.noun,
                    project=names.projects.get(project, ""),
                    name=key,
                    nano_usd=nano_usd,
                    work=grouping.work,
                    done=count,
                    nano_usd_per_1000=nano_usd * 1000 // count if count else None,
                )
            )
    return group_costs


def _stored(spending: SpendBreakdown, names: _Names) -> list[StoredOut]:
    return [
        StoredOut(
            what=running_cost.of.tier.removeprefix(_STORED),
            project=names.projects.get(running_cost.of.project, ""),
            size_bytes=running_cost.stored_bytes,
            nano_usd_per_hour=running_cost.nano_usd_per_hour,
        )
        for running_cost in sorted(spending.stored, key=lambda item: -item.stored_bytes)[
            :RUNS_SHOWN
        ]
    ]


def present_idle(principal: Principal, window: str) -> list[IdleOut]:
    """Return visible idle cost by cause: free capacity (for administrators), idle tasks."""
    timestamp = clock.now()
    nodes = (
        idle_of_nodes(window_of(window, timestamp), timestamp)
        if principal.user.is_administrator
        else []
    )
    return [
        *map(_free_capacity, nodes),
        *map(_idle_workload, idle_tasks(principal, timestamp)),
    ]


def _free_capacity(node: NodeIdle) -> IdleOut:
    part = f"{node.idle_percent:.0f} %"
    return IdleOut(
        cause="unused capacity",
        name=node.name,
        words=f"{part} of the capacity of node {node.name} was unused.",
        nano_usd=node.idle_nano_usd,
        saves_nano_usd_per_hour=node.idle_now_nano_usd_per_hour,
    )


def _idle_workload(idle_usage: IdleUsage) -> IdleOut:
    workload = idle_usage.lease.workload
    return IdleOut(
        cause="idle",
        name=workload.name,
        words=f"{workload.name} used {idle_usage.cpu_percent:.1f} % of its CPUs "
        "in the last half hour.",
        nano_usd=0,
        saves_nano_usd_per_hour=idle_usage.nano_usd_per_hour,
        workload=workload.pk,
        project=workload.project.slug,
    )


def with_cost(quote: Quote, request: AdmissionRequest) -> Quote:
    """Add the expected cost of a start and the answers of its budgets to a quote."""
    admission_quote = quoted(request)
    budgets = [
        BudgetRemainder(
            budget=budget.pk,
            name=budget.scope_name,
            limit_nano_usd=budget.limit_nano_usd,
            left_nano_usd=budget.left_nano_usd,
            would_admit=has_room,
        )
        for budget, has_room in admission_quote.budgets
    ]
    expected = (
        None
        if admission_quote.expected is None
        else ExpectedCost.model_validate(admission_quote.expected)
    )
    return quote.model_copy(
        update={
            "expected": expected,
            "budgets": budgets,
            "set_aside_nano_usd": admission_quote.set_aside_nano_usd,
        }
    )


def present_overhead(window: str) -> OverheadOut:
    """Return the overhead of node groups for display. Raises InvalidInput for another window."""
    timestamp = clock.now()
    requested = window_of(window, timestamp)
    groups = [
        GroupOverheadOut(
            group=overhead.group.name,
            is_removed=overhead.group.removed_at is not None,
            by_day=[
                MachineCostDayOut(day=day, **_machine_cost(overhead.by_day[day]))
                for day in sorted(overhead.by_day)
            ],
            **_machine_cost(overhead.total),
        )
        for overhead in overhead_of_groups(requested, timestamp)
    ]
    return OverheadOut(
        window=requested.name,
        begin=requested.begin,
        end=requested.end,
        as_of=timestamp,
        nano_usd=sum(group.nano_usd for group in groups),
        work_nano_usd=sum(group.work_nano_usd for group in groups),
        overhead_nano_usd=sum(group.overhead_nano_usd for group in groups),
        groups=groups,
    )


def _machine_cost(total: UseTotal) -> dict[str, Any]:
    return {f"{use.value}_nano_usd": total.cost[use] for use in MachineUse} | {
        "nano_usd": total.nano_usd,
        "overhead_nano_usd": total.overhead_nano_usd,
        "work_s": total.ms[MachineUse.WORK] / 1000,
        "overhead_s": (sum(total.ms.values()) - total.ms[MachineUse.WORK]) / 1000,
    }
