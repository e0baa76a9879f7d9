"""The pages of spend: the same figures everywhere, budgets set, alerts read, work resumed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from portal.compute.models import Node
from portal.core.clock import frozen
from portal.spend.budget_enforcement import watch_budgets
from portal.spend.holding_sync import sync_holdings
from portal.spend.meter import meter
from portal.spend.models import Budget
from portal.storage.usage import register_stored
from portal.workloads.costs import unix_ms, workload_cost
from portal.workloads.models import Workload
from slipway.schemas.money import dollars
from tests.personas import Personas, make_user
from tests.portal.spend.conftest import node
from tests.portal.spend.ledgers import make_lease, make_workload
from tests.portal.web.conftest import Browse
from tests.portal.workloads.machines import make_tier, stand_in_kinds, state_of

__all__ = ["node"]
NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with stand_in_kinds():
        yield


@pytest.fixture
def running(people: Personas, node: Node) -> Workload:
    """A job of Bob's that has run for two hours at 3.60 USD an hour."""
    with frozen(NOW - timedelta(days=1)):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_000)
    begun = NOW - timedelta(hours=2)
    workload = make_workload(people.vision, people.bob, tier, begun, kind="notebook")
    make_lease(workload, node, begun)
    with frozen(NOW - timedelta(minutes=20)):
        meter()
    return workload


def test_the_pages_of_spend_show_what_the_run_itself_shows(
    people: Personas, browse: Browse, running: Workload
) -> None:
    with frozen(NOW):
        cost = workload_cost(running, until_ms=unix_ms(NOW))
        assert dollars(cost) == "$7.20"
        for user, address in (
            (people.bob, "/spend"),
            (people.vera, "/p/vision/spend"),
            (people.bob, "/spend?window=today"),
            (people.bob, "/spend?window=7d"),
            (people.root, "/spend/installation"),
            (people.bob, "/spend/month"),
        ):
            page = browse(user).get(address)
            assert page.status_code == 200
            text = page.content.decode()
            assert f'data-cost="{cost}" data-rate="3600000000"' in text, address
        elsewhere = browse(people.charlie).get("/spend").content.decode()
    assert "data-cost" not in elsewhere
    assert "No spend in this period" in elsewhere


def test_many_people_end_in_a_row_for_all_others_so_that_the_split_adds_up(
    people: Personas, browse: Browse, node: Node
) -> None:
    with frozen(NOW - timedelta(days=1)):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_000)
    for number in range(18):
        person = make_user(f"person{number:02d}")
        begun = NOW - timedelta(hours=1 + number)
        ended = NOW - timedelta(minutes=30)
        workload = make_workload(people.vision, person, tier, begun)
        make_lease(workload, node, begun, state="ended", ended_at=ended)
    with frozen(NOW):
        text = browse(people.bob).get("/spend?window=7d").content.decode()
    by_person = text.partition('aria-label="By person"')[2].partition("</section>")[0]
    names = re.findall(r'cell-wide">([^<]+)<', by_person)
    assert len(names) == 16
    assert names[-1] == "3 others"
    costs = re.findall(r"\$([0-9.,]+)", by_person)
    # 1, 2, … 18 hours less the last half of each.
    assert sum(float(cost) for cost in costs) == pytest.approx(3.6 * (18 * 19 / 2 - 18 / 2))
    assert costs[-1] == f"{3.6 * (1 + 2 + 3 - 1.5):.2f}"


def test_a_budget_is_set_alerts_are_read_and_the_limit_is_raised(
    people: Personas, browse: Browse, running: Workload
) -> None:
    alice = browse(people.alice)
    with frozen(NOW):
        refused = alice.post("/spend/budgets", {"group": "vision", "limit": "x", "period": "month"})
        assert refused.status_code == 422
        assert "is not an amount in dollars" in refused.content.decode()
        form = {"group": "vision", "limit": "5", "period": "month", "stops": "on"}
        answer = alice.post("/spend/budgets", form)
        address = answer.headers["Location"]
        watch_budgets()
        text = alice.get(address).content.decode()
        assert "Used up" in text
        assert "has reached 80 % of its budget: $7.20 of $5.00" in text
        assert re.search(r"Overshoot</dt><dd>\$2\.20", text)
        assert state_of(running) == "stopping"
        assert browse(people.bob).post(address, {"limit": "9"}).status_code == 422
        over = {"do": "override", "hours": "2", "reason": "a demo"}
        assert alice.post(address, over).status_code == 302
        assert "Overridden until" in alice.get(address).content.decode()
        assert alice.post(address, {"limit": "50", "stops": "on"}).status_code == 302
    assert Budget.objects.get().limit_nano_usd == 50 * 10**9
    assert alice.post(f"{address}/delete").status_code == 302
    assert not Budget.objects.exists()


def test_what_is_less_than_a_cent_is_written_as_that_and_exactly_where_one_points(
    people: Personas, browse: Browse, node: Node
) -> None:
    with frozen(NOW - timedelta(days=1)):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_000)
    begun = NOW - timedelta(milliseconds=3)
    make_lease(make_workload(people.vision, people.bob, tier, begun), node, begun)
    with frozen(NOW):
        text = browse(people.bob).get("/spend").content.decode()
    # Where every row is below a cent, each shows its digits.
    assert '<td class="cell-number text-nowrap">$0.000003</td>' in text
    assert re.search(r'class="counted" title="\$0\.000003"[^>]*>&lt; \$0\.01<', text)
    assert "$3.60<" in text  # an hour of it is a price, and written out


def test_pages_show_experiments_endpoints_tags_and_what_is_stored(
    people: Personas, browse: Browse, running: Workload, node: Node
) -> None:
    begun = NOW - timedelta(hours=1)
    tags = {"paper": "icml"}
    job = make_workload(people.vision, people.bob, running.tier, begun, tags=tags)
    make_lease(job, node, begun)
    register_stored("datasets", lambda: {people.vision.pk: 3 * 1024**3})
    try:
        with frozen(NOW - timedelta(hours=1)):
            sync_holdings()
    finally:
        register_stored("datasets", dict)
    with frozen(NOW):
        text = browse(people.bob).get("/p/vision/spend").content.decode()
    assert re.search(r"By tag</h2>.*?paper=icml.*?\$3\.60", text, re.DOTALL)
    assert re.search(r"By experiment</h2>.*?train</a>.*?\$3\.60", text, re.DOTALL)
    assert re.search(r"Storage</h2>.*?Datasets.*?3 GiB.*?\$0\.074 a month", text, re.DOTALL)


def test_a_price_is_previewed_before_it_is_set(
    people: Personas, browse: Browse, running: Workload
) -> None:
    with frozen(NOW):
        page = browse(people.root).post("/settings/tiers/small", {"price": "7.2", "do": "preview"})
    text = page.content.decode()
    assert "$7.20 an hour" in text
    assert "instead of $3.60, for 1 task" in text
    running.tier.refresh_from_db()
    assert running.tier.nano_usd_per_hour == 3_600_000_000


def test_rent_or_buy_starts_from_ones_own_use_and_takes_other_assumptions(
    people: Personas, browse: Browse, running: Workload
) -> None:
    bob = browse(people.bob)
    with frozen(NOW):
        text = bob.get("/spend/rent-or-buy").content.decode()
        assert 'name="rent_per_hour" value="3.6"' in text
        assert "Residual value (%)" in text
        assert "Renting stays cheaper" in text
        much = bob.get("/spend/rent-or-buy?used_hours=500&price=20000").content.decode()
    assert re.search(r"Owning is cheaper after \d+ months", much)


def test_administrators_price_bare_resources(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    prices = {"cpu": "0.05", "memory": "0.006", "gpu": "1.5", "storage": "0.00004"}
    assert root.post("/spend/prices", prices).status_code == 302
    assert 'value="0.00004"' in root.get("/spend/prices").content.decode()
    assert browse(people.bob).get("/spend/prices").status_code == 403
