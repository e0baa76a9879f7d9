"""The task of an endpoint and the type of its labels: inferred, stored and kept up to date."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portal.endpoints.models import Endpoint, Revision
from portal.monitoring.analyst import Analyst
from portal.monitoring.models import CapturedHour, HourSummary, Label, Monitor
from portal.monitoring.paths import parts_of
from portal.monitoring.statistics import quality
from portal.monitoring.statistics.tasks import Basis, basis_of
from slipway.schemas.monitoring import MonitorSettings

_MOST_LABELS = 2_000


def stored_basis(monitor: Monitor) -> Basis:
    """Return the stored task of an endpoint, which its metrics are based on."""
    return Basis.from_json((monitor.basis or {}).get("basis"))


def quality_of(hours: Iterable[HourSummary], basis: Basis) -> quality.Sums | None:
    """Return the quality sums of hours. Hours of another task are skipped until recomputed."""
    return quality.add((hour.quality for hour in hours if hour.quality), basis.key)


def is_outdated(monitor: Monitor) -> bool:
    """Return whether the declared task is not the one of the stored basis.

    A pass that began before the declaration may have stored an outdated one.
    """
    basis, settings = stored_basis(monitor), MonitorSettings.model_validate(monitor.settings)
    return (
        basis.is_declared != bool(settings.task)
        or settings.task not in (None, basis.task)
        or settings.label_type not in (None, basis.label_type)
    )


def observe_outputs(
    endpoint: Endpoint,
    monitor: Monitor,
    revisions: Mapping[str, Revision],
    hour: CapturedHour,
    analyst: Analyst,
) -> None:
    """Inspect the outputs of an hour, and infer the task again."""
    monitor.refresh_from_db(fields=["settings", "basis"])
    stored = dict(monitor.basis or {})
    newest = max(revisions.values(), key=lambda revision: revision.number, default=None)
    observed = analyst.request(
        "observe",
        paths=parts_of([hour]),
        revision=newest.pk if newest is not None else "",
        before=stored.get("observed") or {},
    )
    stored["observed"] = observed["outputs"]
    stored["names"] = observed["names"] or stored.get("names") or []
    monitor.basis = stored
    infer_basis(endpoint, monitor, newest)


def infer_basis(endpoint: Endpoint, monitor: Monitor, newest: Revision | None) -> Basis:
    """Infer the task and store it. If it changes, all hours are marked as stale."""
    stored = dict(monitor.basis or {})
    settings = MonitorSettings.model_validate(monitor.settings)
    outputs = stored.get("observed") or {}
    basis = basis_of(
        task=settings.task,
        label_type=settings.label_type,
        signature=newest.signature if newest is not None else None,
        outputs={name: outputs[name] for name in stored.get("names") or [] if name in outputs},
        labels=_labels(endpoint),
    )
    before = stored_basis(monitor)
    monitor.basis = stored | {"basis": basis.as_json()}
    Monitor.objects.filter(pk=monitor.pk).update(basis=monitor.basis)
    if basis.key != before.key:
        CapturedHour.objects.filter(endpoint=endpoint).update(is_stale=True)
    return basis


def newest_revision(endpoint: Endpoint) -> Revision | None:
    """Return the newest revision of an endpoint."""
    return endpoint.revisions.defer("served").order_by("-number").first()


def _labels(endpoint: Endpoint) -> Sequence[Any]:
    rows = Label.objects.filter(endpoint=endpoint, is_current=True)
    return list(rows.order_by("-pk").values_list("value", flat=True)[:_MOST_LABELS])
