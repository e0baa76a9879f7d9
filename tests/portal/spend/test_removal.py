"""A budget is removed while others measure it, as control does all the time."""

import threading

import pytest
from django.db import OperationalError, connection, connections, transaction

from portal.spend.models import Budget, Reservation
from portal.spend.services.budgets import remove_budget, set_budget
from slipway.schemas.spend import BudgetIn
from tests.locks import somebody_waits
from tests.personas import Personas
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


def test_a_budget_that_is_being_measured_is_removed_right_after(people: Personas) -> None:
    wanted = BudgetIn(project="vision", limit_nano_usd=10**9)
    budget = set_budget(by=people.alice, wanted=wanted)
    held = Reservation.objects.create(
        budget=budget, workload="wkl_1", nano_usd=5, left_nano_usd=5, base_nano_usd=0
    )
    ended: list[str] = []

    def remove() -> None:
        try:
            remove_budget(budget=Budget.objects.get(pk=budget.pk), by=people.alice)
            ended.append("removed")
        except OperationalError as error:  # a deadlock
            ended.append(repr(error))
        finally:
            connections.close_all()

    with transaction.atomic():
        Budget.objects.select_for_update().get(pk=budget.pk)
        other = threading.Thread(target=remove)
        other.start()
        wait_for(somebody_waits, "somebody who waits for the budget")
        Reservation.objects.filter(pk=held.pk).update(left_nano_usd=4)
    other.join(30)
    assert ended == ["removed"]
    assert not Budget.objects.exists()
