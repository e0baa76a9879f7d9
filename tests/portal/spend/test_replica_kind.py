"""The migration that renames the kind of replicas in what was written before."""

from datetime import UTC, datetime
from importlib import import_module

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from portal.compute.models import Tier
from portal.spend.models import LabelTotal, Line, MonthTotal, Split
from portal.workloads.models import Workload
from tests.personas import Personas
from tests.portal.spend.ledgers import make_workload
from tests.portal.workloads.machines import make_tier

LEDGER = import_module("portal.spend.migrations.0003_replica_kind")
WORKLOADS = import_module("portal.workloads.migrations.0003_replica_kind")
BEGUN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def tier(db: None) -> Tier:
    """Any tier."""
    return make_tier("small")


def _kinds() -> dict[str, list[str]]:
    return {
        "lines": list(Line.objects.values_list("kind", flat=True)),
        "months": list(MonthTotal.objects.values_list("kind", flat=True)),
        "splits": list(Split.objects.filter(part="kind").values_list("key", flat=True)),
        "labels": list(LabelTotal.objects.values_list("part", flat=True)),
        "workloads": list(Workload.objects.values_list("kind", flat=True)),
    }


def test_the_kind_of_replicas_is_renamed_everywhere_and_the_ledger_stays_closed(
    people: Personas, tier: Tier
) -> None:
    make_workload(people.vision, people.bob, tier, BEGUN, kind="endpoint")
    Line.objects.create(source="lease_1", begin_ms=0, end_ms=1, nano_usd=5, kind="endpoint")
    MonthTotal.objects.create(month="2026-11", kind="endpoint", nano_usd=5)
    Split.objects.create(period="2026-11", part="kind", key="endpoint", nano_usd=5)
    Split.objects.create(period="2026-11", part="person", key="endpoint", nano_usd=5)
    LabelTotal.objects.create(period="2026-11", part="endpoint", key="digits", nano_usd=5)
    before = _kinds()
    for migrate, kind in (("forwards", "replica"), ("backwards", "endpoint")):
        # Not entered: on SQLite that is refused within the transaction of a test.
        editor = connection.schema_editor(atomic=False)
        getattr(LEDGER, migrate)(apps, editor)
        getattr(WORKLOADS, migrate)(apps, editor)
        assert _kinds() == {name: [kind] for name in before}
        assert Split.objects.get(part="person").key == "endpoint"
        with pytest.raises(DatabaseError, match="only ever added to"), transaction.atomic():
            _change_a_line()


def _change_a_line() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE spend_line SET nano_usd = 0")
