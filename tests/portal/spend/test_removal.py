"""A budget is removed while others measure it, as control does all the time, or ask for room."""

from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from portal.core import clock
from portal.core.errors import NotFound
from portal.spend.admission import BudgetAdmission
from portal.spend.models import Budget, Reservation
from portal.spend.services.budgets import override_budget, remove_budget, set_budget
from portal.workloads.ports import AdmissionGranted
from portal.workloads.services.submission import request_of
from slipway.schemas.spend import BudgetIn
from tests.locks import Other
from tests.personas import Api, Personas
from tests.portal.spend.ledgers import make_workload
from tests.portal.workloads.machines import make_tier

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


@pytest.fixture
def budget(people: Personas) -> Budget:
    """A limit on the project vision."""
    return set_budget(by=people.alice, spec=BudgetIn(project="vision", limit_nano_usd=10**9))


def test_a_budget_that_is_being_measured_is_removed_right_after(
    budget: Budget, people: Personas
) -> None:
    held = Reservation.objects.create(
        budget=budget, workload="wkl_1", nano_usd=5, left_nano_usd=5, base_nano_usd=0
    )
    row = Budget.objects.get(pk=budget.pk)
    other = Other(lambda: remove_budget(budget=row, by=people.alice))
    with transaction.atomic():
        Budget.objects.select_for_update().get(pk=budget.pk)
        other.start()
        Reservation.objects.filter(pk=held.pk).update(left_nano_usd=4)
    other.end()
    assert not Budget.objects.exists()


def test_a_budget_that_was_removed_meanwhile_is_not_found(budget: Budget, people: Personas) -> None:
    Budget.objects.filter(pk=budget.pk).delete()
    with pytest.raises(NotFound):
        override_budget(budget=budget, by=people.alice, hours=1, reason="Release day")


def test_a_start_that_waits_while_its_budget_is_removed_needs_no_room_in_it(
    budget: Budget, people: Personas
) -> None:
    tier = make_tier("small", nano_usd_per_hour=10**6)
    request = request_of(make_workload(people.vision, people.alice, tier, clock.now()))
    other = Other(lambda: BudgetAdmission().decide(request))
    with transaction.atomic():
        remove_budget(budget=Budget.objects.get(pk=budget.pk), by=people.alice)
        other.start()
    assert other.end() == AdmissionGranted()


@pytest.mark.parametrize("door", ["API", "page"])
def test_a_change_that_waits_while_its_budget_is_removed_finds_none(
    budget: Budget, people: Personas, door: str
) -> None:
    api, client = Api.of(people.alice), Client(raise_request_exception=False)
    client.force_login(people.alice)

    def change() -> Any:
        if door == "API":
            return api.patch(f"budgets/{budget.pk}", {"limit_nano_usd": 5})
        return client.post(f"/spend/budgets/{budget.pk}", {"limit": "5", "stops": "on"})

    other = Other(change)
    with transaction.atomic():
        remove_budget(budget=Budget.objects.get(pk=budget.pk), by=people.alice)
        other.start()
    response = other.end()
    assert response.status_code == 404, response.content
