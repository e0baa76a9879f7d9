"""Spend on the wire: what was spent, what is set as a limit, what something will cost.

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
    """What a budget limits: each calendar month (UTC), or everything ever spent."""

    MONTH = "month"
    TOTAL = "total"


class ShareOut(AnswerSchema):
    """What one project, person, tier or kind has spent in a window."""

    id: str
    name: str
    nano_usd: int


class DayOut(AnswerSchema):
    """What a day has cost so far, in UTC."""

    day: date
    nano_usd: int


class RunCostOut(AnswerSchema):
    """What one workload has cost in a window; `nano_usd_per_hour` is 0 once it has ended."""

    workload: str
    name: str
    kind: str
    project: str
    person: str
    tier: str
    nano_usd: int
    nano_usd_per_hour: int


class GroupCostOut(AnswerSchema):
    """What an experiment or an endpoint (`noun`) has cost in a window.

    `done` counts what came of it, in `work` (predictions of an endpoint, by days in UTC); absent
    where nothing is counted. `nano_usd_per_1000` is absent until there is something to divide by.
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
    """Bytes of one sort that a project stores now, and what an hour of keeping them costs."""

    what: str
    project: str
    size_bytes: int
    nano_usd_per_hour: int

    @property
    def nano_usd_per_month(self) -> int:
        """What 730 hours of keeping them cost."""
        return 730 * self.nano_usd_per_hour


class ForecastOut(AnswerSchema):
    """What the month will have cost: expected, and between low and high four times in five."""

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    days_seen: int


class SpendOut(AnswerSchema):
    """What a window has cost, live: lines of the ledger and what runs, to the millisecond.

    Each of the four splits adds up to `nano_usd`, and so do the days. `forecast` is absent while
    fewer than three whole days were seen, and for windows other than the present month. Tags need
    not add up: a job may have several or none. `runs`, `by_tag` and `groups` are the dearest;
    `stored` is what lies there now. Runs that are not listed cost `runs_left_out_nano_usd`
    together; `are_tags_left_out` and `groups_left_out` (by `kind`) say that there are more tags
    and groups; `stored_left_out` counts the other stores.
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
    """What a run will cost, from like ones: the median of `runs`, and the middle 80 % of them."""

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    runs: int


class BudgetLeft(AnswerSchema):
    """What one of the budgets in question has left."""

    budget: str
    name: str
    limit_nano_usd: int
    left_nano_usd: int
    would_admit: bool


class BudgetIn(RequestSchema):
    """Set a limit for exactly one of `project`, `team` and `person` (an e-mail address)."""

    project: Slug | None = None
    team: Slug | None = None
    person: Annotated[Line, Field(max_length=254)] | None = None
    period: BudgetPeriod = BudgetPeriod.MONTH
    limit_nano_usd: Limit
    stops: Truth = True
    counts_exempt: Truth = False


class BudgetChange(RequestSchema):
    """Change what is given; raising the limit lets what it stopped be resumed."""

    limit_nano_usd: Limit | None = None
    stops: Truth | None = None
    counts_exempt: Truth | None = None


class OverrideIn(RequestSchema):
    """Let everything pass for some hours; 0 ends it. It stands in the audit log."""

    hours: Annotated[Number, Field(ge=0, le=24 * 7)]
    reason: Annotated[Line, Field(min_length=1, max_length=300)]


class BudgetAlertOut(AnswerSchema):
    """That people were told about a budget."""

    level: str
    message: str
    created_at: datetime


class BudgetOut(AnswerSchema):
    """A budget and where it stands; `left_nano_usd` is after what is set aside for what was let in.

    `overshoot_nano_usd` is what was spent beyond the limit. `alerts` are the newest, and
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
    """The price of a bare resource: `cpu` (one), `memory` (GiB), `gpu` (one), `storage` (GB)."""

    resource: str
    nano_usd_per_hour: int
    effective_from: datetime | None = None


class RateIn(RequestSchema):
    """Price a bare resource from now on."""

    nano_usd_per_hour: Money


class PriceEffect(AnswerSchema):
    """What a new price of a tier would change, before it is set.

    `running_*` is the burn rate of what runs on the tier; `last_30_days_*` what was spent on it.
    """

    tier: str
    now_nano_usd_per_hour: int
    new_nano_usd_per_hour: int
    running: int
    running_now_nano_usd_per_hour: int
    running_new_nano_usd_per_hour: int
    last_30_days_nano_usd: int
    last_30_days_new_nano_usd: int


class IdleOut(AnswerSchema):
    """A waste, its cause in a sentence, and what an hour of stopping it saves."""

    cause: str
    name: str
    words: str
    nano_usd: int
    saves_nano_usd_per_hour: int
    workload: str = ""
    project: str = ""
