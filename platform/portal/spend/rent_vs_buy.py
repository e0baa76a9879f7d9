"""Rent or buy: when owning machines becomes cheaper than renting them. No Django, no I/O."""

from dataclasses import dataclass

HOURS_A_MONTH = 730.5


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the comparison. Every field can be edited on its page.

    Money is in dollars. `rent_per_hour` is what an hour of one such machine costs rented,
    `used_hours` how many such hours a month are needed. The machine draws `watts` while it is on,
    which it always is, and `power_overhead` is what cooling adds (1.4 is 40 %). It is written off
    over `months` to `rest_percent` of its price. Of its hours `failing_percent` are lost to faults,
    and no more than `most_percent` of the others can be put to use.
    """

    rent_per_hour: float
    used_hours: float
    price: float
    watts: float = 700.0
    power_per_kwh: float = 0.20
    power_overhead: float = 1.4
    hosting_per_month: float = 150.0
    staff_hours_per_month: float = 4.0
    staff_per_hour: float = 60.0
    interest_percent: float = 5.0
    months: int = 36
    rest_percent: float = 10.0
    failing_percent: float = 3.0
    most_percent: float = 80.0


@dataclass(frozen=True)
class CostComparison:
    """Result of the comparison. Money in dollars, the curves with one point a month from 0 on.

    `breaks_even_after_months` is None when owning never becomes cheaper within the write-off.
    `breaks_even_at_percent` is the part of a machine's hours that must be used for owning to cost
    as little as renting over the whole write-off, None when even every hour would not do.
    """

    machines: int
    rent_per_month: float
    own_per_month: float
    own_all_in_per_month: float
    used_percent: float
    breaks_even_after_months: int | None
    breaks_even_at_percent: float | None
    renting: list[float]
    owning: list[float]


def compare(given: Assumptions) -> CostComparison:
    """Compare renting the hours used with owning the whole machines they require."""
    usable = HOURS_A_MONTH * (1 - given.failing_percent / 100) * given.most_percent / 100
    machines = max(1, -int(-given.used_hours // usable)) if usable > 0 else 1
    rent = given.rent_per_hour * given.used_hours
    running = _running_cost(given)
    writing_off = given.price * (1 - given.rest_percent / 100) / given.months
    interest = given.price * given.interest_percent / 100 / 12
    all_in = running + writing_off + interest
    renting = [rent * month for month in range(given.months + 1)]
    owning = [
        machines * (given.price + (running + interest) * month - _worth(given, month))
        for month in range(given.months + 1)
    ]
    after = next(
        (month for month in range(1, given.months + 1) if owning[month] <= renting[month]), None
    )
    full = given.rent_per_hour * HOURS_A_MONTH
    percent = 100 * all_in / full if full > 0 else None
    return CostComparison(
        machines=machines,
        rent_per_month=rent,
        own_per_month=machines * running,
        own_all_in_per_month=machines * all_in,
        used_percent=100 * given.used_hours / (machines * HOURS_A_MONTH),
        breaks_even_after_months=after,
        breaks_even_at_percent=percent if percent is not None and percent <= 100 else None,
        renting=renting,
        owning=owning,
    )


def _running_cost(given: Assumptions) -> float:
    """Return the running cost of a machine per month: power, hosting, staff."""
    kwh = given.watts / 1000 * HOURS_A_MONTH * given.power_overhead
    staff = given.staff_hours_per_month * given.staff_per_hour
    return kwh * given.power_per_kwh + given.hosting_per_month + staff


def _worth(given: Assumptions, month: int) -> float:
    """Return the resale value of a machine: the residual at the end, zero before."""
    return given.price * given.rest_percent / 100 if month == given.months else 0.0
