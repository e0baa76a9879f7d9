"""Installations with all old migrations of an app go on with the one that replaces them."""

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from portal.config.setup.steps import migrate
from portal.config.supervision.errors import StartError

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]

_APP = "spend"


@pytest.fixture
def recorder() -> MigrationRecorder:
    """Return the record of migrations of an installation that is older than all squashed ones."""
    recorder = MigrationRecorder(connection)
    for squashed, migration in MigrationLoader(connection).replacements.items():
        recorder.record_unapplied(*squashed)
        for replaced in migration.replaces:
            recorder.record_applied(*replaced)
    return recorder


def _squashed() -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """Return the squashed migration of an app, and those that it replaces."""
    replacements = MigrationLoader(connection).replacements.items()
    ((key, migration),) = [item for item in replacements if item[0][0] == _APP]
    return key, list(migration.replaces)


def test_tables_that_the_old_migrations_created_are_those_of_the_new_one(
    recorder: MigrationRecorder,
) -> None:
    squashed, _ = _squashed()
    assert squashed not in recorder.applied_migrations()
    assert migrate() == 0
    assert squashed in recorder.applied_migrations()


def test_half_of_the_old_migrations_are_refused_with_what_to_do(
    recorder: MigrationRecorder,
) -> None:
    _, replaced = _squashed()
    recorder.record_unapplied(*replaced[-1])
    with pytest.raises(StartError, match=f"older than its migration {replaced[-1][1]}; run the"):
        migrate()
