"""Budgets: nothing starts without room, everybody is told once, what runs is saved and stopped."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from portal.accounts.models import AuditEvent, OutboxMail
from portal.accounts.services.teams import create_team
from portal.compute.models import Node, Tier
from portal.core.clock import frozen
from portal.core.errors import Conflict, Forbidden, NotFound
from portal.spend.admission import BudgetAdmission, quoted
from portal.spend.budget_enforcement import watch_budgets
from portal.spend.ledger import LedgerEntry, Source, post
from portal.spend.meter import meter
from portal.spend.models import Budget, BudgetAlert, Reservation
from portal.spend.services.budgets import change_budget, override_budget, set_budget
from portal.workloads.costs import unix_ms
from portal.workloads.models import Workload
from portal.workloads.ports import (
    AdmitEverything,
    BudgetRule,
    Kind,
    register_admission,
    register_kind,
)
from portal.workloads.scheduling import run_passes
from portal.workloads.services.resume import resume_workload
from portal.workloads.services.submission import request_of
from slipway.schemas.spend import BudgetIn, BudgetPeriod
from tests.personas import Api, Personas, json_of
from tests.portal.spend.ledgers import close, make_lease, make_workload
from tests.portal.workloads.machines import finish, make_tier, run, state_of, submit

pytestmark = pytest.mark.postgres

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
USD = 10**9


@pytest.fixture(autouse=True)
def _budgets_in_force() -> Iterator[None]:
    register_admission(BudgetAdmission())
    with frozen(NOW):
        yield
    register_admission(AdmitEverything())


@pytest.fixture
def tier(node: Node) -> Tier:
    """One CPU for 3.60 USD an hour, a tenth of a cent a second, on a node heard of just now."""
    Node.objects.update(last_seen_at=NOW)
    return make_tier("small", nano_usd_per_hour=3_600_000_000)


def limit(people: Personas, nano_usd: int, **changes: object) -> Budget:
    """Limit what the project vision spends a month."""
    fields = {"project": "vision", "limit_nano_usd": nano_usd} | changes
    return set_budget(by=people.alice, spec=BudgetIn.model_validate(fields))


def ran_before(people: Personas, node: Node, tier: Tier, *seconds: int) -> None:
    """Let runs named `train` have ended well after so many seconds each."""
    for lasted in seconds:
        begun = NOW - timedelta(hours=2)
        workload = make_workload(people.vision, people.bob, tier, begun, state="succeeded")
        close(make_lease(workload, node, begun), begun + timedelta(seconds=lasted))
    with frozen(NOW - timedelta(hours=1)):
        meter()


def test_of_forty_starts_with_room_for_three_exactly_three_are_admitted(
    people: Personas, tier: Tier
) -> None:
    budget = limit(people, 10_800_000_000)
    admitted, message = 0, ""
    for _ in range(40):
        try:
            submit(people.vision, people.bob, tier, max_lifetime_s=3600)
            admitted += 1
        except Conflict as error:
            message = error.message
    assert admitted == 3
    budget.refresh_from_db()
    assert budget.reserved_nano_usd == 10_800_000_000
    assert message == (
        "The budget of project vision has $0.00 of $10.80 for November 2026 left; "
        "this start needs $3.60."
    )
    assert Workload.objects.count() == Reservation.objects.count() == 3


def test_a_quote_tells_median_and_range_of_like_runs_and_what_is_left(
    people: Personas, node: Node, tier: Tier
) -> None:
    budget = limit(people, 10 * USD)
    new = make_workload(people.vision, people.bob, tier, NOW, state="submitted")
    with frozen(NOW):
        watch_budgets()
        assert quoted(request_of(new)).expected is None
        assert quoted(request_of(new)).set_aside_nano_usd == 60_000_000
    ran_before(people, node, tier, *range(100, 1100, 100))
    with frozen(NOW):
        quote = quoted(request_of(new))
    assert quote.expected is not None
    figures = (quote.expected.low_nano_usd, quote.expected.nano_usd, quote.expected.high_nano_usd)
    assert figures == (200_000_000, 600_000_000, 1_000_000_000)
    assert quote.expected.runs == 10
    assert quote.budgets == [(budget, True)]


def test_what_is_set_aside_is_given_back_as_it_is_spent_and_at_the_end(
    people: Personas, tier: Tier
) -> None:
    with frozen(NOW):
        budget = limit(people, 10 * USD)
        job = submit(people.vision, people.bob, tier, max_lifetime_s=1000)
        run_passes()
        run(job)
    with frozen(NOW + timedelta(seconds=400)):
        watch_budgets()
        budget.refresh_from_db()
        assert (budget.spent_nano_usd, budget.reserved_nano_usd) == (400_000_000, 600_000_000)
        finish(job)
        watch_budgets()
    budget.refresh_from_db()
    assert (budget.spent_nano_usd, budget.reserved_nano_usd) == (400_000_000, 0)


def test_people_are_told_once_at_each_level_by_page_and_mail(people: Personas, tier: Tier) -> None:
    with frozen(NOW):
        budget = limit(people, USD, stops=False)
        job = submit(people.vision, people.bob, tier)
        run_passes()
        run(job)
    levels = []
    for seconds in (400, 500, 501, 800, 900, 1000, 1500, 1501):
        with frozen(NOW + timedelta(seconds=seconds)):
            watch_budgets()
            levels.append(list(budget.alerts.order_by("pk").values_list("level", flat=True)))
    assert levels == [
        [],
        *([["50"]] * 2),
        *([["50", "80"]] * 2),
        *([["50", "80", "100"]] * 3),
    ]
    mails = OutboxMail.objects.filter(subject__contains="budget").order_by("pk")
    assert [mail.to for mail in mails] == ["alice@example.org"] * 3
    assert "has reached 80 % of its budget: $0.80 of $1.00 for November 2026" in mails[1].body
    assert state_of(job) == "running"


def test_at_the_limit_starts_are_refused_and_what_runs_stops_until_it_is_raised(
    people: Personas, tier: Tier
) -> None:
    with frozen(NOW):
        budget = limit(people, USD)
        job = submit(people.vision, people.bob, tier)
        waiting = submit(people.vision, people.bob, tier, priority=-1)
        run_passes()
        run(job)
    with frozen(NOW + timedelta(seconds=1001)):
        watch_budgets()
        assert state_of(job) == "stopping"
        finish(job, reason="budget")
        assert (state_of(job), job.reason) == ("stopped", "budget")
        assert job.reason_text.startswith(
            "Stopped by budget: project vision reached 100 % of $1.00 for November 2026."
        )
        assert state_of(waiting) in ("stopped", "stopping")
        with pytest.raises(Conflict, match="is used up"):
            submit(people.vision, people.bob, tier)
        with pytest.raises(Conflict, match="is used up"):
            resume_workload(workload=job, by=people.bob)
        change_budget(budget=budget, by=people.alice, limit_nano_usd=5 * USD)
        watch_budgets()
        Node.objects.update(last_seen_at=NOW + timedelta(seconds=1000))
        again = resume_workload(workload=job, by=people.bob)
        run_passes()
    assert state_of(again) == "placed"
    assert again.epoch == 2
    budget.refresh_from_db()
    assert budget.overshoot_nano_usd == 0


def test_a_kind_is_warned_and_saved_before_it_is_stopped(people: Personas, tier: Tier) -> None:
    saved = []

    def save(*, workload_id: str, stops_at: datetime, why: str) -> None:
        saved.append((workload_id, stops_at))

    register_kind(Kind("notebook", "notebook", budget=BudgetRule(warning_s=120, save=save)))
    register_kind(Kind("replica", "replica", budget=BudgetRule(is_exempt=True)))
    with frozen(NOW):
        budget = limit(people, USD)
        notebook = submit(people.vision, people.bob, tier, kind="notebook")
        replica = submit(people.vision, people.bob, tier, kind="replica")
        run_passes()
        run(notebook)
        run(replica)
    reached = NOW + timedelta(seconds=501)
    with frozen(reached):
        watch_budgets()
        assert state_of(notebook) == "running"
        assert saved == [(notebook.pk, reached + timedelta(seconds=120))]
    with frozen(reached + timedelta(seconds=121)):
        watch_budgets()
        assert state_of(notebook) == "stopping"
        assert state_of(replica) == "running"
        change_budget(budget=budget, by=people.alice, counts_exempt=True)
        watch_budgets()
        assert state_of(replica) == "stopping"


def test_who_was_warned_and_could_go_on_is_warned_anew(people: Personas, tier: Tier) -> None:
    saved: list[datetime] = []

    def save(*, workload_id: str, stops_at: datetime, why: str) -> None:
        saved.append(stops_at)

    register_kind(Kind("notebook", "notebook", budget=BudgetRule(warning_s=120, save=save)))
    with frozen(NOW):
        budget = limit(people, USD)
        notebook = submit(people.vision, people.bob, tier, kind="notebook")
        run_passes()
        run(notebook)
    with frozen(NOW + timedelta(seconds=1001)):
        watch_budgets()
    with frozen(NOW + timedelta(seconds=1031)):
        change_budget(budget=budget, by=people.alice, limit_nano_usd=2 * USD)
        watch_budgets()
    again = NOW + timedelta(seconds=2001)
    with frozen(again):
        watch_budgets()
        assert state_of(notebook) == "running"
    assert saved == [NOW + timedelta(seconds=1121), again + timedelta(seconds=120)]
    with frozen(again + timedelta(seconds=121)):
        watch_budgets()
        assert state_of(notebook) == "stopping"


def test_work_that_cannot_be_saved_keeps_nothing_else_from_being_stopped(
    people: Personas, tier: Tier
) -> None:
    def save(*, workload_id: str, stops_at: datetime, why: str) -> None:
        raise OSError("the notebook does not answer")

    register_kind(Kind("notebook", "notebook", budget=BudgetRule(warning_s=120, save=save)))
    spec = BudgetIn(person="charlie@example.org", limit_nano_usd=USD)
    with frozen(NOW):
        limit(people, USD)
        set_budget(by=people.root, spec=spec)
        notebook = submit(people.vision, people.bob, tier, kind="notebook")
        jobs = [
            submit(people.vision, people.bob, tier, max_lifetime_s=60),
            submit(people.other, people.charlie, tier, max_lifetime_s=60),
        ]
        run_passes()
        for workload in (notebook, *jobs):
            run(workload)
    with frozen(NOW + timedelta(seconds=1001)):
        watch_budgets()
        assert [state_of(job) for job in jobs] == ["stopping", "stopping"]
    with frozen(NOW + timedelta(seconds=1122)):
        watch_budgets()
        assert state_of(notebook) == "stopping"


def test_an_override_lets_everything_pass_for_its_time_and_is_audited(
    people: Personas, tier: Tier
) -> None:
    with frozen(NOW):
        budget = limit(people, 1)
        job = make_workload(people.vision, people.bob, tier, NOW)
        with pytest.raises(Conflict):
            submit(people.vision, people.bob, tier)
        override_budget(budget=budget, by=people.alice, hours=2, reason="the demo on Monday")
        submit(people.vision, people.bob, tier)
        watch_budgets()
    assert state_of(job) == "running"
    event = AuditEvent.objects.get(verb="budget.override")
    assert (event.after or {})["reason"] == "the demo on Monday"
    with frozen(NOW + timedelta(hours=2, seconds=1)), pytest.raises(Conflict):
        submit(people.vision, people.bob, tier)


def test_a_person_and_a_team_have_budgets_of_their_own(people: Personas, tier: Tier) -> None:
    team = create_team(by=people.alice, name="Research")
    people.vision.team = team
    people.vision.save()
    set_budget(
        by=people.alice, spec=BudgetIn(team="research", limit_nano_usd=60_000_000, period="total")
    )
    submit(people.vision, people.bob, tier)
    with pytest.raises(Conflict, match=r"team research has \$0.00 of \$0.06 in total left"):
        submit(people.vision, people.bob, tier)
    set_budget(by=people.root, spec=BudgetIn(person="charlie@example.org", limit_nano_usd=1))
    with pytest.raises(Conflict, match="Charlie"):
        submit(people.other, people.charlie, tier)


def test_only_owners_and_administrators_set_budgets(people: Personas) -> None:
    spec = BudgetIn(project="vision", limit_nano_usd=1, period=BudgetPeriod.TOTAL)
    for by, error in ((people.mia, Forbidden), (people.charlie, NotFound)):
        with pytest.raises(error):
            set_budget(by=by, spec=spec)
    with pytest.raises(Forbidden):
        set_budget(by=people.alice, spec=BudgetIn(person="bob@example.org", limit_nano_usd=1))
    set_budget(by=people.root, spec=spec)
    with pytest.raises(Conflict):
        set_budget(by=people.alice, spec=spec)


def test_a_forecast_above_the_limit_is_told_once(people: Personas) -> None:
    of = Source("lse_1", "job", people.vision.pk)
    for day in range(1, 21):
        at = unix_ms(datetime(2026, 11, day, tzinfo=UTC))
        post([LedgerEntry(of, at, at + 1000, USD + day % 2)])
    limit(people, 45 * USD)
    with frozen(NOW):
        watch_budgets()
        assert not BudgetAlert.objects.exists()
    Budget.objects.update(limit_nano_usd=25 * USD)
    for _ in range(2):
        with frozen(NOW):
            watch_budgets()
    alerts = dict(BudgetAlert.objects.values_list("level", "message"))
    assert BudgetAlert.objects.count() == len(alerts)
    assert set(alerts) == {"50", "80", "forecast"}
    assert "will spend about $29.50" in alerts["forecast"]


def test_a_second_budget_for_the_same_period_is_refused_and_names_the_first(
    people: Personas,
) -> None:
    limit(people, USD)
    before = AuditEvent.objects.count()
    with pytest.raises(
        Conflict, match="A budget of project vision already exists for this"
    ) as refused:
        limit(people, 2 * USD)
    assert refused.value.code == "budget_exists"
    assert refused.value.next_step == "Change the limit of the existing one."
    assert AuditEvent.objects.count() == before


def test_alerts_of_a_budget_that_are_left_out_are_counted(people: Personas) -> None:
    budget = limit(people, USD)
    alice = Api.of(people.alice)
    assert json_of(alice.get(f"budgets/{budget.pk}"))["alerts_left_out"] == 0
    for number in range(23):
        BudgetAlert.objects.create(
            budget=budget,
            window="2026-11",
            limit_nano_usd=number,
            level="50",
            message=f"alert {number}",
        )
    shown = json_of(alice.get(f"budgets/{budget.pk}"))
    assert (len(shown["alerts"]), shown["alerts_left_out"]) == (20, 3)
    [listed] = json_of(alice.get("budgets"))["items"]
    assert listed["alerts_left_out"] == 3


def test_a_budget_that_is_nearly_used_up_is_a_notification_until_its_window_ends(
    people: Personas,
) -> None:
    budget = limit(people, 10 * USD)

    def spend_now(nano_usd: int) -> None:
        at = unix_ms(NOW) + Budget.objects.get().spent_nano_usd // USD
        source = Source("lse_1", "job", people.vision.pk)
        post([LedgerEntry(source, at, at + 1, nano_usd)])
        watch_budgets()

    def notified(api: Api, path: str = "notifications") -> list[tuple[str, str, bool]]:
        items = json_of(api.get(path))["items"]
        return [(item["id"], item["title"], item["waits_for_you"]) for item in items]

    spend_now(7 * USD)
    alice, vera, charlie = map(Api.of, (people.alice, people.vera, people.charlie))
    assert notified(alice) == []
    spend_now(1 * USD)
    title = "Budget of project vision: 80 % used"
    assert notified(alice) == notified(vera) == [(budget.pk, title, False)]
    assert notified(vera, "projects/vision/notifications") == [(budget.pk, title, False)]
    spend_now(2 * USD)
    title = "Budget of project vision: used up"
    assert notified(alice) == [(budget.pk, title, True)]
    assert notified(vera) == [(budget.pk, title, False)]
    assert notified(charlie) == []
    override_budget(budget=budget, by=people.alice, hours=2, reason="demo")
    assert notified(alice) == []
    with frozen(NOW + timedelta(days=12)):
        assert notified(alice) == []
