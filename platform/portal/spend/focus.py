"""Spend as a CSV of FOCUS columns (the FinOps Open Cost and Usage Specification)."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from django.http import StreamingHttpResponse

from portal.accounts.models import Project, User
from portal.compute.models import Node, Tier
from portal.core import clock
from portal.spend.ledger import LedgerEntry, Source
from portal.spend.models import Line
from portal.spend.models.ledger import KIND_CAPACITY
from portal.spend.queries import Scope, compute_live_cost
from portal.spend.windows import Window, window_of
from portal.workloads.models import Workload

COLUMNS = (
    *("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"),
    *("ChargeCategory", "ChargeClass", "ChargeDescription", "BillingCurrency"),
    *("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"),
    *("ConsumedQuantity", "ConsumedUnit", "ProviderName", "PublisherName", "InvoiceIssuerName"),
    *("ServiceCategory", "ServiceName", "SkuId", "ResourceId", "ResourceName", "ResourceType"),
    *("SubAccountId", "SubAccountName", "x_Person", "x_Node", "x_BilledNanoUsd", "x_IsLive"),
)
_BATCH = 2000
_US = "Slipway"
# A spreadsheet would interpret text that begins like this as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def focus_csv(scope: Scope, window: Window, timestamp: datetime) -> Iterator[bytes]:
    """Yield the CSV of a window: every line, then live cost not in the ledger yet (`x_IsLive`)."""
    lines = Line.objects.filter(
        scope.sums_filter(), begin_ms__gte=window.begin_ms, begin_ms__lt=window.end_ms
    ).exclude(kind=KIND_CAPACITY)
    live = [
        ledger_entry
        for ledger_entry in compute_live_cost(scope, timestamp).entries
        if window.begin_ms <= ledger_entry.begin_ms < window.end_ms
    ]
    yield _csv([list(COLUMNS)])
    after = 0
    while rows := list(lines.filter(pk__gt=after).order_by("pk")[:_BATCH]):
        after = rows[-1].pk
        yield _rows([_entry(line) for line in rows], window, is_live=False)
    if live:
        yield _rows(live, window, is_live=True)


def focus_download(scope: Scope, window: str) -> StreamingHttpResponse:
    """Return the CSV of a window as a download. Raise InvalidInput for an unknown window."""
    timestamp = clock.now()
    requested = window_of(window, timestamp)
    answer = StreamingHttpResponse(
        focus_csv(scope, requested, timestamp), content_type="text/csv; charset=utf-8"
    )
    name = f"slipway-spend-{requested.name}.csv"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _entry(line: Line) -> LedgerEntry:
    of = Source(
        line.source,
        line.kind,
        line.project,
        line.team,
        line.person,
        line.tier,
        line.node,
        line.workload,
    )
    return LedgerEntry(of, line.begin_ms, line.end_ms, line.nano_usd, 0, line.is_correction)


class _Names:
    """Display names of the ids in some rows."""

    def __init__(self, entries: list[LedgerEntry]) -> None:
        self.projects = dict(
            Project.objects.filter(
                pk__in={ledger_entry.of.project for ledger_entry in entries}
            ).values_list("pk", "slug")
        )
        self.people = dict(
            User.objects.filter(
                pk__in={ledger_entry.of.person for ledger_entry in entries}
            ).values_list("pk", "email")
        )
        self.tiers = dict(
            Tier.objects.filter(
                pk__in={ledger_entry.of.tier for ledger_entry in entries}
            ).values_list("pk", "slug")
        )
        self.nodes = dict(
            Node.objects.filter(
                pk__in={ledger_entry.of.node for ledger_entry in entries}
            ).values_list("pk", "name")
        )
        self.workloads = dict(
            Workload.objects.filter(
                pk__in={ledger_entry.of.workload for ledger_entry in entries}
            ).values_list("pk", "name")
        )


def _rows(entries: list[LedgerEntry], window: Window, *, is_live: bool) -> bytes:
    names = _Names(entries)
    return _csv([_row(ledger_entry, names, window, is_live=is_live) for ledger_entry in entries])


def _row(entry: LedgerEntry, names: _Names, window: Window, *, is_live: bool) -> list[str]:
    of = entry.of
    cost = format(Decimal(entry.nano_usd) / 10**9, "f")
    hours = format(Decimal(entry.end_ms - entry.begin_ms) / 3_600_000, ".9f")
    name = names.workloads.get(of.workload, "")
    sku = names.tiers.get(of.tier, of.tier)
    return [
        _time(window.begin_ms),
        _time(window.end_ms),
        _time(entry.begin_ms),
        _time(entry.end_ms),
        "Usage",
        "Correction" if entry.is_correction else "",
        f"{of.kind} {name}".strip(),
        "USD",
        *[cost] * 4,
        hours,
        "Hours",
        *[_US] * 3,
        "Storage" if of.kind == "storage" else "AI and Machine Learning",
        of.kind,
        sku,
        of.workload or of.source,
        name,
        of.kind,
        of.project,
        names.projects.get(of.project, ""),
        names.people.get(of.person, ""),
        names.nodes.get(of.node, ""),
        str(entry.nano_usd),
        "true" if is_live else "false",
    ]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _csv(rows: list[list[str]]) -> bytes:
    packed = io.StringIO()
    csv.writer(packed, lineterminator="\r\n").writerows(
        [[_escape_formula(cell) for cell in row] for row in rows]
    )
    return packed.getvalue().encode()


def _escape_formula(cell: str) -> str:
    is_number = cell.lstrip("-").replace(".", "", 1).isdigit()
    return f"'{cell}" if cell.startswith(_FORMULA) and not is_number else cell
