"""The meter: whatever happens to it, the ledger says what the leases cost, to the nano-dollar."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from portal.compute.models import Node, Tier, TierPrice
from portal.core.clock import frozen
from portal.spend.holding_sync import sync_holdings
from portal.spend.idle import idle_of_nodes
from portal.spend.meter import meter
from portal.spend.models import Holding, Line, RatePrice
from portal.spend.models.ledger import TAG
from portal.spend.queries import Scope, spending_of
from portal.spend.windows import window_of
from portal.storage.usage import register_stored
from portal.workloads.models import Lease
from tests.personas import Personas
from tests.portal.spend.ledgers import (
    assert_sums_equal_lines,
    close,
    dying,
    interrupted,
    make_lease,
    make_workload,
    owed,
    written,
)
from tests.portal.workloads.machines import make_tier
from tests.turns import asked_all, in_turns

pytestmark = pytest.mark.postgres

START = datetime(2026, 11, 29, 21, 17, 3, 141_592, tzinfo=UTC)
EVERYTHING = Scope()
EXAMPLES = int(os.environ.get("METER_EXAMPLES", "25" if asked_all() else "8"))
seconds = st.one_of(st.integers(0, 90), st.integers(0, 20_000)).map(
    lambda s: timedelta(seconds=s, milliseconds=s % 997)
)
picks = st.integers(0, 1000)
steps = st.one_of(
    st.tuples(st.just("grant"), picks),
    st.tuples(st.just("close"), picks, seconds),
    st.tuples(st.just("price"), picks, st.integers(0, 10**11)),
    st.tuples(st.just("rate"), picks, st.integers(0, 10**10)),
    st.tuples(st.just("store"), picks, st.integers(0, 10**13)),
    st.tuples(st.just("wait"), seconds),
    st.tuples(st.just("meter"), st.none() | st.integers(0, 40)),
    st.tuples(st.just("meter_twice"), st.integers(0, 30)),
    st.tuples(st.just("jump"), seconds, st.booleans()),
)


@dataclass
class Ledger:
    """What a history of steps is played on."""

    people: Personas
    node: Node
    tiers: list[Tier]
    now: datetime
    leases: list[Lease]
    stored: dict[str, int]

    def play(self, step: tuple[Any, ...]) -> None:
        with frozen(self.now):
            getattr(self, step[0])(*step[1:])

    def grant(self, pick: int) -> None:
        project = [self.people.vision, self.people.other][pick % 2]
        by = [self.people.alice, self.people.bob, self.people.charlie][pick % 3]
        kind = ["job", "notebook"][pick % 5 % 2]
        tier = self.tiers[pick % 7 % 2]
        if len([lease for lease in self.leases if lease.is_open]) < 4:
            workload = make_workload(
                project, by, tier, self.now, kind=kind, tags={"paper": f"p{pick % 2}"}
            )
            self.leases.append(make_lease(workload, self.node, self.now))

    def close(self, pick: int, back: timedelta) -> None:
        still = [lease for lease in self.leases if lease.is_open]
        if still:
            close(still[pick % len(still)], self.now - back)

    def price(self, pick: int, nano_usd: int) -> None:
        tier = self.tiers[pick % 2]
        if not TierPrice.objects.filter(tier=tier, effective_from=self.now).exists():
            TierPrice.objects.create(tier=tier, nano_usd_per_hour=nano_usd, effective_from=self.now)

    def rate(self, pick: int, nano_usd: int) -> None:
        resource = ["cpu", "memory", "storage"][pick % 3]
        if not RatePrice.objects.filter(resource=resource, effective_from=self.now).exists():
            RatePrice.objects.create(
                resource=resource, nano_usd_per_hour=nano_usd, effective_from=self.now
            )

    def store(self, pick: int, size: int) -> None:
        self.stored[[self.people.vision.pk, self.people.other.pk][pick % 2]] = size
        sync_holdings()

    def wait(self, time: timedelta) -> None:
        self.now += time

    def meter(self, crash: int | None) -> None:
        with dying(crash):
            meter()

    def meter_twice(self, at: int) -> None:
        with interrupted(at, meter):
            meter()

    def jump(self, time: timedelta, forward: bool) -> None:
        meter(self.now + time if forward else self.now - time)

    def check(self) -> None:
        """What is shown now is what everything has cost by now, in every split."""
        with frozen(self.now):
            for lease in self.leases:
                lease.refresh_from_db()
            due = sum(owed(lease, self.now) for lease in self.leases)
            months = [window_of(name, self.now) for name in ("2026-11", "2026-12")]
            shown = [spending_of(EVERYTHING, window) for window in months]
            leased = sum(spent.nano_usd - spent.by_kind["storage"] for spent in shown)
            assert leased == due
            for spent in shown:
                splits = (spent.by_project, spent.by_person, spent.by_tier)
                assert {sum(split.values()) for split in (*splits, spent.by_day)} == {
                    spent.nano_usd
                }
                assert sum(spent.by_run.values()) == spent.nano_usd - spent.by_kind["storage"]
                tagged = sum(n for (_, part, _), n in spent.by_label.items() if part == TAG)
                assert tagged == spent.nano_usd - spent.by_kind["storage"]
                jobs = sum(n for (_, part, _), n in spent.by_label.items() if part == "job")
                assert jobs == spent.by_kind["job"]
                parts = [
                    spending_of(Scope(projects=(project.pk,)), spent.window)
                    for project in (self.people.vision, self.people.other)
                ]
                assert sum(part.nano_usd for part in parts) == spent.nano_usd

    def end(self) -> None:
        """Once everything has ended, the lines alone say it, and there was never negative idle."""
        self.now += timedelta(seconds=1)
        with frozen(self.now):
            for lease in self.leases:
                if lease.is_open:
                    close(lease, self.now)
            self.stored.clear()
            Node.objects.filter(pk=self.node.pk).update(state="removed")
            sync_holdings()
            meter()
            meter()
        lines = written()
        for lease in Lease.objects.all():
            assert lease.is_settled
            assert lines[lease.pk] == owed(lease, self.now) == lease.billed_nano_usd
        for holding in Holding.objects.filter(kind="storage"):
            assert lines[holding.pk] == holding.billed_nano_usd
        assert_sums_equal_lines()
        for name in ("2026-11", "2026-12"):
            for idle in idle_of_nodes(window_of(name, self.now), self.now):
                assert idle.idle_nano_usd >= 0


@pytest.fixture
def ledger(people: Personas, node: Node) -> Ledger:
    """Two tiers, one node, nothing granted."""
    Node.objects.filter(pk=node.pk).update(created_at=START)
    with frozen(START):
        tiers = [
            make_tier("small", nano_usd_per_hour=123_456_789),
            make_tier("large", nano_usd_per_hour=3_600_000_001),
        ]
    return Ledger(people, node, tiers, START, [], {})


# A meter that was overtaken just before it wrote the first line of all could not go on.
@pytest.mark.thorough
@example(
    history=[
        ("grant", 0),
        ("grant", 0),
        ("store", 0, 0),
        ("wait", timedelta(seconds=2577, microseconds=583000)),
        ("meter_twice", 10),
    ]
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=st.lists(steps, min_size=4, max_size=24))
def test_the_sum_of_lines_is_the_exact_integral_whatever_happened(
    ledger: Ledger, history: list[tuple[Any, ...]]
) -> None:
    savepoint = transaction.savepoint()
    ledger.now, ledger.leases, ledger.stored = START, [], {}
    stored: Mapping[str, int] = ledger.stored
    register_stored("datasets", lambda: stored)
    try:
        ledger.play(("grant", 0))
        for at, step in enumerate(history):
            ledger.play(step)
            if at % 6 == 5:
                ledger.check()
        ledger.check()
        ledger.end()
    finally:
        register_stored("datasets", dict)
        transaction.savepoint_rollback(savepoint)


@pytest.mark.parametrize("crash", in_turns(range(0, 44, 3), "crashes", one_in=3))
def test_a_meter_that_dies_anywhere_leaves_all_or_nothing(ledger: Ledger, crash: int) -> None:
    ledger.play(("grant", 0))
    ledger.play(("grant", 1))
    ledger.play(("wait", timedelta(hours=3)))
    ledger.play(("close", 0, timedelta(minutes=1)))
    ledger.play(("meter", crash))
    assert_sums_equal_lines()
    ledger.check()
    ledger.end()


@pytest.mark.parametrize("at", range(0, 26, 2))
def test_what_is_shown_is_right_also_while_the_meter_writes(ledger: Ledger, at: int) -> None:
    ledger.play(("grant", 0))
    ledger.play(("wait", timedelta(hours=3, minutes=10)))
    with frozen(ledger.now):
        with interrupted(at, meter):
            shown = spending_of(EVERYTHING, window_of("2026-11", ledger.now))
        later = spending_of(EVERYTHING, window_of("2026-12", ledger.now))
        parts = [owed(lease, ledger.now) for lease in ledger.leases]
    assert shown.nano_usd + later.nano_usd == sum(parts) > 0
    assert sum(shown.by_label.values()) == 2 * shown.nano_usd  # its experiment and its tag


def test_lines_are_cut_at_full_hours_and_where_the_price_changes(ledger: Ledger) -> None:
    ledger.play(("grant", 0))
    ledger.play(("wait", timedelta(minutes=10)))
    ledger.play(("price", 0, 7_200_000_000))
    ledger.play(("wait", timedelta(hours=1)))
    ledger.play(("close", 0, timedelta(0)))
    ledger.play(("meter", None))
    lines = list(Line.objects.filter(source=ledger.leases[0].pk).order_by("begin_ms"))
    assert [(line.end_ms - line.begin_ms) // 1000 for line in lines] == [600, 1976, 1623]
    assert lines[1].nano_usd == pytest.approx(2 * 1976.858 * 10**6, abs=10**4)
    assert not any(line.is_correction for line in lines)


def test_a_lease_that_ended_earlier_than_written_is_taken_back_by_reversing_lines(
    ledger: Ledger,
) -> None:
    ledger.play(("grant", 0))
    ledger.play(("wait", timedelta(hours=4)))
    ledger.play(("meter", None))
    before = Line.objects.count()
    ledger.play(("close", 0, timedelta(hours=3)))
    ledger.play(("meter", None))
    back = Line.objects.order_by("pk")[before:]
    assert all(line.nano_usd < 0 and line.is_correction for line in back)
    assert written()[ledger.leases[0].pk] == owed(ledger.leases[0], ledger.now)


def test_nobody_changes_or_deletes_a_line(ledger: Ledger) -> None:
    ledger.play(("grant", 0))
    ledger.play(("wait", timedelta(hours=2)))
    ledger.play(("meter", None))
    with pytest.raises(TypeError, match="only ever added"):
        Line.objects.all().delete()
    line = Line.objects.first()
    assert line is not None
    line.nano_usd += 1
    with pytest.raises(DatabaseError, match="only ever added"), transaction.atomic():
        line.save()
