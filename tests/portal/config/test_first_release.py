"""Installations made before migrations were made one for the first release go on with it."""

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from portal.config.setup.steps import migrate
from portal.config.supervision.errors import StartError

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]

_OLD = ["0001_initial", "0002_append_only", "0003_labels", "0004_workload_totals_by_workload"]


@pytest.fixture
def recorder() -> MigrationRecorder:
    """The record of migrations, as the one of an installation that had the old ones of `spend`."""
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("spend", "0001_first_release")
    for name in _OLD:
        recorder.record_applied("spend", name)
    return recorder


def test_tables_that_the_old_migrations_made_are_those_of_the_new_one(
    recorder: MigrationRecorder,
) -> None:
    assert migrate() == 0
    assert ("spend", "0001_first_release") in recorder.applied_migrations()


def test_half_of_the_old_migrations_are_refused_with_what_to_do(
    recorder: MigrationRecorder,
) -> None:
    recorder.record_unapplied("spend", _OLD[-1])
    with pytest.raises(StartError, match=f"older than its migration {_OLD[-1]}; run the last"):
        migrate()
