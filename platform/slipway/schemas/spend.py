"""Wire schemas of spend: cost, budgets and forecasts.

Money is integer nano-USD everywhere.
"""

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, Number, RequestSchema, Slug, Truth, Whole

MOST_NANO_USD = 10**17
Money = Annotated[Whole, Field(ge=0, le=MOST_NANO_USD)]
Limit = Annotated[Whole, Field(ge=1, le=MOST_NANO_USD)]


class BudgetPeriod(StrEnum):
    """Period of a budget: each calendar month (UTC), or the total."""

    MONTH = "month"
    TOTAL = "total"


class ShareOut(AnswerSchema):
    """Cost of one project, person, tier or kind in a window."""

    id: str
    name: str
    nano_usd: int


class DayOut(AnswerSchema):
    """Cost of a day so far, in UTC."""

    day: date
    nano_usd: int


class RunCostOut(AnswerSchema):
    """Cost of one workload in a window. `nano_usd_per_hour` is 0 once it has ended."""

    workload: str
    name: str
    kind: str
    project: str
    person: str
    tier: str
    nano_usd: int
    nano_usd_per_hour: int


class GroupCostOut(AnswerSchema):
    """Cost of an experiment or an endpoint (`noun`) in a window.

    `done` counts its results, in `work` (predictions of an endpoint, by days in UTC). It is absent
    where nothing is counted. `nano_usd_per_1000` is absent if `done` is 0 or absent.
    """

    kind: str
    noun: str
    project: str
    name: str
    nano_usd: int
    work: str = ""
    done: int | None = None
    nano_usd_per_1000: int | None = None


class StoredOut(AnswerSchema):
    """Stored bytes of one kind in a project, and their current cost per hour."""

    what: str
    project: str
    size_bytes: int
    nano_usd_per_hour: int

    @property
    def nano_usd_per_month(self) -> int:
        """Cost of 730 hours of storage."""
        return 730 * self.nano_usd_per_hour


class ForecastOut(AnswerSchema):
    """Forecast of the month's cost: expected value, and an 80 % range from low to high."""

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    days_seen: int


class SpendOut(AnswerSchema):
    """Cost of a window, live: ledger entries and running workloads, to the millisecond.

    Each of the four splits adds up to `nano_usd`, and so do the days. `forecast` is absent with
    fewer than three full days of data, and for windows other than the current month. Tags need
    not add up: a job may have several or none. `runs`, `by_tag` and `groups` are the top entries by
    cost, and `stored` is the current storage. Runs that are not listed cost
    `runs_left_out_nano_usd` together. `are_tags_left_out` and `groups_left_out` (by `kind`) say
    that there are more tags and groups. `stored_left_out` counts the other stores.
    """

    window: str
    begin: datetime
    end: datetime
    as_of: datetime
    nano_usd: int
    nano_usd_per_hour: int
    by_project: list[ShareOut]
    by_person: list[ShareOut]
    by_tier: list[ShareOut]
    by_kind: list[ShareOut]
    by_day: list[DayOut]
    runs: list[RunCostOut]
    runs_left_out_nano_usd: int = 0
    by_tag: list[ShareOut] = []
    are_tags_left_out: bool = False
    groups: list[GroupCostOut] = []
    groups_left_out: list[str] = []
    stored: list[StoredOut] = []
    stored_left_out: int = 0
    forecast: ForecastOut | None = None


class ExpectedCost(AnswerSchema):
    """Expected cost of a run from similar ones: the median of `runs`, and their middle 80 %."""

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    runs: int


class BudgetRemainder(AnswerSchema):
    """Remaining amount of an applicable budget."""

    budget: str
    name: str
    limit_nano_usd: int
    left_nano_usd: int
    would_admit: bool


class BudgetIn(RequestSchema):
    """A limit for exactly one of `project`, `team` and `person` (an e-mail address)."""

    project: Slug | None = None
    team: Slug | None = None
    person: Annotated[Line, Field(max_length=254)] | None = None
    period: BudgetPeriod = BudgetPeriod.MONTH
    limit_nano_usd: Limit
    stops: Truth = True
    counts_exempt: Truth = False


class BudgetChange(RequestSchema):
    """Changes to a budget. After raising the limit, work it stopped can be resumed."""

    limit_nano_usd: Limit | None = None
    stops: Truth | None = None
    counts_exempt: Truth | None = None


class OverrideIn(RequestSchema):
    """Suspend the limit for some hours. 0 ends the override. The audit log records it."""

    hours: Annotated[Number, Field(ge=0, le=24 * 7)]
    reason: Annotated[Line, Field(min_length=1, max_length=300)]


class BudgetAlertOut(AnswerSchema):
    """A notification about a budget."""

    level: str
    message: str
    created_at: datetime


class BudgetOut(AnswerSchema):
    """A budget and its state. `left_nano_usd` excludes the amounts reserved for admitted work.

    `overshoot_nano_usd` is the spend beyond the limit. `alerts` are the newest, and
    `alerts_left_out` counts the others.
    """

    id: str
    scope: str
    name: str
    period: BudgetPeriod
    window: str
    limit_nano_usd: int
    spent_nano_usd: int
    reserved_nano_usd: int
    left_nano_usd: int
    overshoot_nano_usd: int
    stops: bool
    counts_exempt: bool
    is_used_up: bool
    override_until: datetime | None = None
    override_reason: str = ""
    alerts: list[BudgetAlertOut] = []
    alerts_left_out: int = 0


class RateOut(AnswerSchema):
    """Price of a bare resource: `cpu` (one), `memory` (GiB), `gpu` (one), `storage` (GB)."""

    resource: str
    nano_usd_per_hour: int
    effective_from: datetime | None = None


class RateIn(RequestSchema):
    """Price of a bare resource from now on."""

    nano_usd_per_hour: Money


class PriceEffect(AnswerSchema):
    """Effect of a new price of a tier, before it is set.

    `running_*` is the current cost rate of workloads on the tier, `last_30_days_*` their spend.
    """

    tier: str
    now_nano_usd_per_hour: int
    new_nano_usd_per_hour: int
    running: int
    running_now_nano_usd_per_hour: int
    running_new_nano_usd_per_hour: int
    last_30_days_nano_usd: int
    last_30_days_new_nano_usd: int


class MachineCostOut(AnswerSchema):
    """Cost of machines of node groups: `nano_usd` is that of work and `overhead_nano_usd` together.

    The overhead is that of machines that start, are idle, are idle for the last time before they
    leave (`grace`), or are being released (`ending`). No project pays it.
    """

    nano_usd: int
    work_nano_usd: int
    overhead_nano_usd: int
    starting_nano_usd: int
    idle_nano_usd: int
    grace_nano_usd: int
    ending_nano_usd: int
    work_s: float
    overhead_s: float


class MachineCostDayOut(MachineCostOut):
    """Cost of the machines of a group on one day, in UTC."""

    day: date


class GroupOverheadOut(MachineCostOut):
    """Cost of the machines of one group. Days without a machine are left out."""

    group: str
    is_removed: bool
    by_day: list[MachineCostDayOut]


class OverheadOut(AnswerSchema):
    """Cost of the machines of all node groups in a window, the most overhead first."""

    window: str
    begin: datetime
    end: datetime
    as_of: datetime
    nano_usd: int
    work_nano_usd: int
    overhead_nano_usd: int
    groups: list[GroupOverheadOut]


class IdleOut(AnswerSchema):
    """An idle resource, its cause, and the savings per hour of stopping it."""

    cause: str
    name: str
    words: str
    nano_usd: int
    saves_nano_usd_per_hour: int
    workload: str = ""
    project: str = ""
