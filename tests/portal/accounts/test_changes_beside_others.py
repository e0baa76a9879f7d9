"""Administrators change people at the same time."""

import pytest
from django.db import connection, transaction

from portal.accounts.models import User
from portal.accounts.services.people import change_account
from tests.locks import Other
from tests.personas import Personas

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


def test_who_changes_a_person_locks_all_concerned_in_one_order(people: Personas) -> None:
    first, second = sorted((people.root, people.mia), key=lambda person: person.pk)
    User.objects.filter(pk=first.pk).update(is_administrator=False)
    User.objects.filter(pk=second.pk).update(is_administrator=True)
    other = Other(lambda: change_account(user_id=first.pk, is_active=False))
    with transaction.atomic():
        locked = User.objects.select_for_update(no_key=True)
        locked.get(pk=first.pk)
        other.start()
        locked.get(pk=second.pk)
    assert not other.end().is_active
