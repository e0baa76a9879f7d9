"""Monitoring report of an endpoint: from hours and windows, or from rows for a slice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from portal.core import clock
from portal.core.errors import InvalidInput, NotFound
from portal.endpoints.lifecycle import RevisionState
from portal.endpoints.models import Endpoint, Revision
from portal.monitoring.adapters.parquet import (
    ALL_FAILED,
    ANSWERED,
    COLUMNS_AT_ONCE,
    Flat,
    ParquetConditions,
)
from portal.monitoring.alerting import ENOUGH
from portal.monitoring.drift_metrics import adjusted, psi, psi_p_value, share_moved
from portal.monitoring.label_basis import stored_basis
from portal.monitoring.models import (
    Alert,
    BaselineRecord,
    DriftWindow,
    EmptyLabel,
    HourSummary,
    Label,
    Monitor,
)
from portal.monitoring.pipeline import baselines_of
from portal.monitoring.prediction_search import (
    clamp_time,
    condition,
    filters_of,
    retry_if_replaced,
)
from portal.monitoring.quality_points import (
    by_hour,
    by_revision,
    quality_of_rows,
    quality_point,
    task_out,
)
from portal.monitoring.statistics import truths
from portal.monitoring.statistics.tasks import Basis
from portal.monitoring.traffic import captures_of, error_rate_of, minutes_of, points_of
from portal.monitoring.windows import Windows, windows_of
from slipway.schemas.monitoring import (
    AlertOut,
    FeatureOut,
    HourPoint,
    MonitoringOut,
    MonitorSettings,
    SelectionFilters,
    VerdictName,
)
from slipway.schemas.quality import QualityPoint

_SPAN = timedelta(days=1)
_OUT = "out."
_LONGEST = timedelta(days=400)
_SLICE_ROWS = 50_000
SLICE_LABELS = 20_000
_MOST_FEATURES = 600
_ALERTS = 50
_ORDER = [
    *(VerdictName.DRIFTED, VerdictName.DIFFERENT, VerdictName.NOT_ENOUGH_DATA),
    *(VerdictName.NO_BASELINE, VerdictName.STEADY),
]


@dataclass(frozen=True)
class ReportQuery:
    """Query of a report: time range, optional revision, optional row filter."""

    endpoint: Endpoint
    since: datetime
    until: datetime
    revision: Revision | None = None
    slice: SelectionFilters | None = None

    @property
    def slice_text(self) -> str:
        """The slice as the person entered it."""
        if self.slice is None or self.slice.feature is None:
            return ""
        return f"{self.slice.feature} {self.slice.operator} {self.slice.value}"


def build_report_query(
    endpoint: Endpoint,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    revision: int | None = None,
    feature: str | None = None,
    operator: str = "=",
    value: str | None = None,
) -> ReportQuery:
    """Return the query of a report. Raises InvalidInput, and NotFound for a revision."""
    end = clamp_time(until) if until else clock.now()
    begin = clamp_time(since) if since else end - _SPAN
    if not begin < end or end - begin > _LONGEST:
        raise InvalidInput(
            "The time range is empty, or longer than 400 days.",
            field="since",
            next_step="Choose a start before the end.",
        )
    revision_row = None
    if revision is not None:
        revision_row = endpoint.revisions.filter(number=revision).defer("served").first()
        if revision_row is None:
            raise NotFound
    chosen = None
    if feature:
        if not value or operator not in ("=", "!=", "<", "<=", ">", ">="):
            raise InvalidInput(
                "A slice needs a feature, an operator and a value.",
                field="value",
                next_step="For example: feature=age, operator=>=, value=65.",
            )
        chosen = filters_of(
            {
                "since": begin,
                "until": end,
                "feature": feature,
                "operator": operator,
                "value": value,
            }
        )
    return ReportQuery(endpoint, begin, end, revision_row, chosen)


def view(report_query: ReportQuery) -> MonitoringOut:
    """Return the monitoring report of an endpoint."""
    endpoint = report_query.endpoint
    monitor = Monitor.objects.filter(endpoint=endpoint).first() or Monitor(endpoint=endpoint)
    settings = MonitorSettings.model_validate(monitor.settings)
    revisions = {hour_point.pk: hour_point for hour_point in endpoint.revisions.defer("served")}
    hours = _hours(report_query)
    minutes = minutes_of(endpoint, report_query.since, report_query.until, report_query.revision)
    named = (
        report_query.revision.pk
        if report_query.revision is not None
        else _baseline_revision(hours, revisions)
    )
    base = baselines_of(
        endpoint, [hour_point for key, hour_point in revisions.items() if key == named]
    )
    chosen = base.get(named or "")
    basis = stored_basis(monitor)
    sliced = None
    if report_query.slice is not None:
        sliced = _slice(report_query, chosen, named, settings.positive, basis)
        features, points = sliced.features, sliced.hours
    else:
        hour_summaries = [hour for hour in hours if hour.revision_id == named]
        features, points = (
            _features(report_query, chosen, hour_summaries, named),
            points_of(minutes, hours),
        )
    alerts = alerts_of(endpoint, revisions)
    all_alerts = Alert.objects.filter(endpoint=endpoint)
    windows = (
        Windows() if sliced else windows_of(endpoint, named, report_query.since, report_query.until)
    )
    return MonitoringOut(
        endpoint=endpoint.name,
        since=report_query.since,
        until=report_query.until,
        revision=revisions[named].number if named in revisions else None,
        slice=report_query.slice_text,
        verdict=_overall_verdict(features, chosen),
        baseline=chosen.words if chosen is not None else "",
        predictions=sum(hour_point.predictions for hour_point in points),
        failed=sum(hour_point.failed or 0 for hour_point in points),
        refused=sum(hour_point.refused or 0 for hour_point in points),
        rejected=sum(hour_point.rejected or 0 for hour_point in points),
        unauthorized=sum(hour_point.unauthorized or 0 for hour_point in points),
        error_rate=error_rate_of(points, None if sliced else minutes),
        rows=sliced.rows if sliced is not None else sum(hour.rows for hour in hours),
        unreadable=monitor.unreadable,
        shortened=monitor.shortened,
        **captures_of(minutes),
        sampled_rows=sliced.sampled if sliced is not None else None,
        hours=points,
        features=features,
        features_left_out=len(chosen.features) - len(features) if chosen is not None else 0,
        windows=windows.shown,
        windows_left_out=windows.left_out,
        quality=sliced.quality
        if sliced is not None
        else quality_point("all", hours, basis, is_detailed=True),
        quality_by_hour=[] if sliced is not None else by_hour(hours, basis),
        quality_by_revision=[] if sliced is not None else by_revision(hours, revisions, basis),
        alerts=alerts,
        alerts_left_out=all_alerts.count() - len(alerts) if len(alerts) >= _ALERTS else 0,
        settings=settings,
        task=task_out(basis),
        empty_labels=EmptyLabel.objects.filter(endpoint=endpoint).count(),
        processed_at=monitor.processed_at,
        fault=monitor.fault,
    )


def _hours(report_query: ReportQuery) -> list[HourSummary]:
    hour_summaries = HourSummary.objects.filter(
        endpoint=report_query.endpoint,
        hour__gt=report_query.since - timedelta(hours=1),
        hour__lt=report_query.until,
    )
    if report_query.revision is not None:
        hour_summaries = hour_summaries.filter(revision_id=report_query.revision.pk)
    if report_query.slice is not None:
        # Summaries cover all predictions. A slice only needs the revisions that predicted.
        hour_summaries = hour_summaries.only("hour", "revision_id")
    return list(hour_summaries.order_by("hour"))


def _baseline_revision(
    hours: Sequence[HourSummary], revisions: Mapping[str, Revision]
) -> str | None:
    """Return the revision whose baseline is used: the newest that predicted in the time range.

    Before the first prediction it is the newest that is serving.
    """
    there = [revisions[hour.revision_id] for hour in hours if hour.revision_id in revisions]
    there = there or [
        revision for revision in revisions.values() if revision.state == RevisionState.SERVING
    ]
    return max(there, key=lambda revision_row: revision_row.number).pk if there else None


def _features(
    report_query: ReportQuery,
    base: BaselineRecord | None,
    hours: Sequence[HourSummary],
    revision: str | None,
) -> list[FeatureOut]:
    if base is None:
        return []
    windows = DriftWindow.objects.filter(
        endpoint=report_query.endpoint,
        revision_id=revision,
        ends_at__gt=report_query.since,
        starts_at__lt=report_query.until,
    )
    last = windows.order_by("-ends_at").first()
    values = {item["name"]: item for item in last.features} if last is not None else {}
    features = []
    for feature in base.features[:_MOST_FEATURES]:
        name = feature["name"]
        counts = _added(feature["counts"], (hour.counts.get(name) for hour in hours))
        verdict = VerdictName.NOT_ENOUGH_DATA
        if last is not None and name in values:
            verdict = VerdictName(values[name]["verdict"])
            if name in last.drifted:
                verdict = VerdictName.DRIFTED
        adjusted_p = values[name]["p_adjusted"] if name in values else None
        features.append(_feature(feature, counts, verdict, adjusted_p))
    return _ranked(features)


def _added(base: Sequence[int], rows: Iterable[Sequence[int] | None]) -> list[int]:
    added = [0] * len(base)
    for row in rows:
        if row is not None and len(row) == len(added):
            for at, count in enumerate(row):
                added[at] += count
    return added


def _feature(
    base: Mapping[str, Any], counts: Sequence[int], verdict: VerdictName, p: float | None
) -> FeatureOut:
    rows = sum(counts)
    first = sum(base["counts"]) or 1
    missing = counts[-2] if base["kind"] == "number" else counts[-1]
    return FeatureOut(
        name=base["name"].partition(".")[2],
        is_output=base["name"].startswith("out."),
        kind=base["kind"],
        verdict=verdict,
        rows=rows,
        share=share_moved(base["counts"], counts),
        psi=psi(base["counts"], counts) if rows else 0.0,
        p_adjusted=p,
        missing_share=missing / rows if rows else 0.0,
        base_missing_share=base["missing"] / first,
        bins=bins_of(base),
        base=[count / first for count in base["counts"]],
        window=[count / (rows or 1) for count in counts],
    )


def bins_of(base: Mapping[str, Any]) -> list[str]:
    """Return the labels of the bins of a baseline."""
    if base["kind"] != "number":
        return [*base["categories"], "other", "unseen", "missing"]
    edges = [f"{edge:.4g}" for edge in base["edges"]]
    if not edges:
        return ["all", "missing", "infinite"]
    between = [f"{low} to {high}" for low, high in pairwise(edges)]
    return [f"≤ {edges[0]}", *between, f"> {edges[-1]}", "missing", "infinite"]


def _ranked(features: list[FeatureOut]) -> list[FeatureOut]:
    """Return features, the worst first."""
    return sorted(
        features, key=lambda feature: (_ORDER.index(feature.verdict), -feature.share, feature.name)
    )


def _overall_verdict(features: Sequence[FeatureOut], base: BaselineRecord | None) -> VerdictName:
    if base is None:
        return VerdictName.NO_BASELINE
    there = {feature.verdict for feature in features}
    for verdict in (VerdictName.DRIFTED, VerdictName.DIFFERENT):
        if verdict in there:
            return verdict
    if not there or VerdictName.NOT_ENOUGH_DATA in there:
        return VerdictName.NOT_ENOUGH_DATA
    return VerdictName.STEADY


@dataclass(frozen=True)
class _Sliced:
    rows: int
    sampled: int
    hours: list[HourPoint]
    features: list[FeatureOut]
    quality: QualityPoint


@dataclass
class _SliceData:
    """Data of a slice from the files. `said` holds the outputs of labelled predictions."""

    rows: int = 0
    sampled: int = 0
    hours: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)


def _slice(
    report_query: ReportQuery,
    base: BaselineRecord | None,
    revision: str | None,
    positive: str | None,
    basis: Basis,
) -> _Sliced:
    """Count the rows of a slice in the bins of the baseline, or those of a random sample."""
    features = base.features[:_MOST_FEATURES] if base is not None else []
    labels, labels_left_out = _labels_between(report_query)

    assert report_query.slice is not None  # noqa: S101 - the caller checked it
    where, failed, labelled = (
        _row_conditions(report_query, report_query.slice, revision, status)
        for status in (ANSWERED, ALL_FAILED, ANSWERED)
    )
    labelled.rows_among(sorted(labels))

    def ask(chosen: Flat) -> _SliceData:
        seen = _SliceData(rows=chosen.count(where))
        for start in range(0, max(1, len(features)), COLUMNS_AT_ONCE):
            some = features[start : start + COLUMNS_AT_ONCE]
            columns = [output["name"] for output in some]
            seen.sampled = chosen.sample(where, most=_SLICE_ROWS, columns=columns)
            if seen.sampled:
                seen.counts += [_counts(chosen, output) for output in some]
        if seen.sampled:
            seen.hours = chosen.by_hour()
        seen.failures = chosen.failures(failed)
        if labels:
            names = [
                output.removeprefix(_OUT) for output in chosen.columns if output.startswith(_OUT)
            ]
            outputs = truths.needed(names, basis.task)
            requested = ["prediction_id", "row", *(_OUT + output for output in outputs)]
            seen.said = chosen.find(labelled, limit=SLICE_LABELS, columns=requested)
        return seen

    seen = retry_if_replaced(report_query.endpoint, report_query.slice, ask)
    counts = seen.counts or [[0] * len(feature["counts"]) for feature in features]
    measured = quality_of_rows(seen.said, labels, seen.rows, positive, basis)
    measured.labels_left_out = labels_left_out
    return _Sliced(
        seen.rows,
        seen.sampled,
        _merge_hour_points(seen),
        _feature_verdicts(features, counts),
        measured,
    )


def _row_conditions(
    report_query: ReportQuery, chosen: SelectionFilters, revision: str | None, status: str
) -> ParquetConditions:
    where = condition(report_query.endpoint, chosen, status=status)
    return where if revision is None else where.fact("revision", "=", revision)


def _merge_hour_points(seen: _SliceData) -> list[HourPoint]:
    """Return the hours with the numbers of answered and of failed predictions."""
    hour_points_by_hour = {
        failure["hour"]: HourPoint(**failure, failed=0, refused=0) for failure in seen.hours
    }
    for failure in seen.failures:
        point = hour_points_by_hour.setdefault(
            failure["hour"], HourPoint(hour=failure["hour"], predictions=0)
        )
        point.failed, point.refused = failure["failed"], failure["refused"]
    return [point for _, point in sorted(hour_points_by_hour.items())]


def _counts(chosen: Flat, base: Mapping[str, Any]) -> list[int]:
    name = base["name"]
    if name not in chosen.columns:
        return [0] * len(base["counts"])
    if base["kind"] == "number":
        if chosen.columns[name] != "DOUBLE":
            return [0] * len(base["counts"])
        return chosen.numbers(name, base["edges"])
    place = {item: at for at, item in enumerate(base["categories"])}
    rare = len(place)
    place |= dict.fromkeys(base["others"], rare)
    counts = [0] * (rare + 3)
    for value, times in chosen.names(name).items():
        plain = value.removesuffix(".0") if value is not None else None
        counts[rare + 2 if plain is None else place.get(plain, rare + 1)] += times
    return counts


def _feature_verdicts(
    features: Sequence[Mapping[str, Any]], counts: Sequence[Sequence[int]]
) -> list[FeatureOut]:
    p_values = adjusted(
        [psi_p_value(base["counts"], values) for base, values in zip(features, counts, strict=True)]
    )
    items = []
    for base, values, p in zip(features, counts, p_values, strict=True):
        rows = sum(values)
        verdict = VerdictName.STEADY
        if rows < ENOUGH or sum(base["counts"]) < ENOUGH:
            verdict = VerdictName.NOT_ENOUGH_DATA
        elif p < 0.01 and share_moved(base["counts"], values) >= 0.1:
            verdict = VerdictName.DIFFERENT
        items.append(_feature(base, values, verdict, p if rows >= ENOUGH else None))
    return _ranked(items)


def _labels_between(report_query: ReportQuery) -> tuple[dict[tuple[str, int], Any], int]:
    """Return the newest labels of the time range, and the number of older ones left out."""
    rows = Label.objects.filter(
        endpoint=report_query.endpoint,
        is_current=True,
        hour__gt=report_query.since - timedelta(hours=1),
        hour__lt=report_query.until,
    ).exclude(prediction_id="")
    newest = rows.order_by("-pk").values_list("prediction_id", "row", "value")[:SLICE_LABELS]
    labels = {(prediction, row): value for prediction, row, value in newest}
    return labels, rows.count() - len(labels) if len(labels) >= SLICE_LABELS else 0


def alerts_of(endpoint: Endpoint, revisions: Mapping[str, Revision]) -> list[AlertOut]:
    """Return the first alerts of an endpoint: those that fire, then the newest."""
    rows = Alert.objects.filter(endpoint=endpoint)
    alerts = [*rows.firing().order_by("-pk")[:_ALERTS]]
    others = rows.exclude(pk__in=[alert.pk for alert in alerts]).order_by("-pk")
    alerts += others[: _ALERTS - len(alerts)]
    return [alert_out(alert, revisions) for alert in alerts]


def alert_out(alert: Alert, revisions: Mapping[str, Revision]) -> AlertOut:
    """Describe an alert."""
    revision = revisions.get(alert.revision_id)
    return AlertOut(
        id=alert.pk,
        kind=alert.kind,
        subject=alert.subject,
        state=alert.state,
        reason=alert.reason,
        revision=revision.number if revision is not None else None,
        created_at=alert.created_at,
        seen_at=alert.seen_at,
        snoozed_until=alert.snoozed_until,
        resolved_at=alert.resolved_at,
    )
