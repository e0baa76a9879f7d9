"""How an endpoint did in a span: put together from hours and windows; of a slice, from rows."""

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
    condition,
    filters_of,
    in_calendar,
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
    """What a view is of: a span, of one revision if it is given, of rows that match if they are."""

    endpoint: Endpoint
    since: datetime
    until: datetime
    revision: Revision | None = None
    slice: SelectionFilters | None = None

    @property
    def words(self) -> str:
        """The slice as a person wrote it."""
        if self.slice is None or self.slice.feature is None:
            return ""
        return f"{self.slice.feature} {self.slice.operator} {self.slice.value}"


def asked_of(
    endpoint: Endpoint,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    revision: int | None = None,
    feature: str | None = None,
    operator: str = "=",
    value: str | None = None,
) -> ReportQuery:
    """Return what a view is of; raises InvalidInput, and NotFound for a revision."""
    end = in_calendar(until) if until else clock.now()
    begin = in_calendar(since) if since else end - _SPAN
    if not begin < end or end - begin > _LONGEST:
        raise InvalidInput(
            "The span is empty, or longer than 400 days.",
            field="since",
            next_step="Choose a beginning before the end.",
        )
    found = None
    if revision is not None:
        found = endpoint.revisions.filter(number=revision).defer("served").first()
        if found is None:
            raise NotFound
    chosen = None
    if feature:
        if not value or operator not in ("=", "!=", "<", "<=", ">", ">="):
            raise InvalidInput(
                "A slice has a feature, an operator and a value.",
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
    return ReportQuery(endpoint, begin, end, found, chosen)


def view(asked: ReportQuery) -> MonitoringOut:
    """Return how an endpoint did."""
    endpoint = asked.endpoint
    monitor = Monitor.objects.filter(endpoint=endpoint).first() or Monitor(endpoint=endpoint)
    settings = MonitorSettings.model_validate(monitor.settings)
    revisions = {one.pk: one for one in endpoint.revisions.defer("served")}
    hours = _hours(asked)
    minutes = minutes_of(endpoint, asked.since, asked.until, asked.revision)
    named = asked.revision.pk if asked.revision is not None else _newest(hours, revisions)
    base = baselines_of(endpoint, [one for key, one in revisions.items() if key == named])
    chosen = base.get(named or "")
    basis = stored_basis(monitor)
    sliced = None
    if asked.slice is not None:
        sliced = _slice(asked, chosen, named, settings.positive, basis)
        features, points = sliced.features, sliced.hours
    else:
        mine = [hour for hour in hours if hour.revision_id == named]
        features, points = _features(asked, chosen, mine, named), points_of(minutes, hours)
    alerts = alerts_of(endpoint, revisions)
    all_alerts = Alert.objects.filter(endpoint=endpoint)
    windows = Windows() if sliced else windows_of(endpoint, named, asked.since, asked.until)
    return MonitoringOut(
        endpoint=endpoint.name,
        since=asked.since,
        until=asked.until,
        revision=revisions[named].number if named in revisions else None,
        slice=asked.words,
        verdict=_worst(features, chosen),
        baseline=chosen.words if chosen is not None else "",
        predictions=sum(one.predictions for one in points),
        failed=sum(one.failed or 0 for one in points),
        refused=sum(one.refused or 0 for one in points),
        turned_away=sum(one.turned_away or 0 for one in points),
        unauthorized=sum(one.unauthorized or 0 for one in points),
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
        looked_at=monitor.looked_at,
        fault=monitor.fault,
    )


def _hours(asked: ReportQuery) -> list[HourSummary]:
    found = HourSummary.objects.filter(
        endpoint=asked.endpoint,
        hour__gt=asked.since - timedelta(hours=1),
        hour__lt=asked.until,
    )
    if asked.revision is not None:
        found = found.filter(revision_id=asked.revision.pk)
    if asked.slice is not None:
        # What they sum up is of all predictions: of a slice only which revisions predicted counts.
        found = found.only("hour", "revision_id")
    return list(found.order_by("hour"))


def _newest(hours: Sequence[HourSummary], revisions: Mapping[str, Revision]) -> str | None:
    """Return the revision whose baseline counts: the newest that predicted in the span.

    Before the first prediction it is the newest that serves.
    """
    there = [revisions[hour.revision_id] for hour in hours if hour.revision_id in revisions]
    there = there or [one for one in revisions.values() if one.state == RevisionState.SERVING]
    return max(there, key=lambda one: one.number).pk if there else None


def _features(
    asked: ReportQuery,
    base: BaselineRecord | None,
    hours: Sequence[HourSummary],
    revision: str | None,
) -> list[FeatureOut]:
    if base is None:
        return []
    windows = DriftWindow.objects.filter(
        endpoint=asked.endpoint,
        revision_id=revision,
        ends_at__gt=asked.since,
        starts_at__lt=asked.until,
    )
    last = windows.order_by("-ends_at").first()
    told = {one["name"]: one for one in last.features} if last is not None else {}
    found = []
    for feature in base.features[:_MOST_FEATURES]:
        name = feature["name"]
        counts = _added(feature["counts"], (hour.counts.get(name) for hour in hours))
        verdict = VerdictName.NOT_ENOUGH_DATA
        if last is not None and name in told:
            verdict = VerdictName(told[name]["verdict"])
            if name in last.drifted:
                verdict = VerdictName.DRIFTED
        adjusted_p = told[name]["p_adjusted"] if name in told else None
        found.append(_feature(feature, counts, verdict, adjusted_p))
    return _ranked(found)


def _added(base: Sequence[int], rows: Iterable[Sequence[int] | None]) -> list[int]:
    found = [0] * len(base)
    for row in rows:
        if row is not None and len(row) == len(found):
            for at, count in enumerate(row):
                found[at] += count
    return found


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
    """Return how the bins of a baseline are called."""
    if base["kind"] != "number":
        return [*base["categories"], "other", "unseen", "missing"]
    edges = [f"{edge:.4g}" for edge in base["edges"]]
    if not edges:
        return ["all", "missing", "infinite"]
    between = [f"{low} to {high}" for low, high in pairwise(edges)]
    return [f"≤ {edges[0]}", *between, f"> {edges[-1]}", "missing", "infinite"]


def _ranked(features: list[FeatureOut]) -> list[FeatureOut]:
    """Return features, the worst first."""
    return sorted(features, key=lambda one: (_ORDER.index(one.verdict), -one.share, one.name))


def _worst(features: Sequence[FeatureOut], base: BaselineRecord | None) -> VerdictName:
    if base is None:
        return VerdictName.NO_BASELINE
    there = {one.verdict for one in features}
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
    """What the files tell of a slice; `said` are the outputs of predictions that have a label."""

    rows: int = 0
    sampled: int = 0
    hours: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)


def _slice(
    asked: ReportQuery,
    base: BaselineRecord | None,
    revision: str | None,
    positive: str | None,
    basis: Basis,
) -> _Sliced:
    """Count the rows of a slice in the bins of the baseline; of many, those of a fair sample."""
    features = base.features[:_MOST_FEATURES] if base is not None else []
    labels, labels_left_out = _labels_between(asked)

    assert asked.slice is not None  # noqa: S101 - asked for above
    where, failed, labelled = (
        _where(asked, asked.slice, revision, status) for status in (ANSWERED, ALL_FAILED, ANSWERED)
    )
    labelled.rows_among(sorted(labels))

    def ask(chosen: Flat) -> _SliceData:
        seen = _SliceData(rows=chosen.count(where))
        for start in range(0, max(1, len(features)), COLUMNS_AT_ONCE):
            some = features[start : start + COLUMNS_AT_ONCE]
            columns = [one["name"] for one in some]
            seen.sampled = chosen.sample(where, most=_SLICE_ROWS, columns=columns)
            if seen.sampled:
                seen.counts += [_counts(chosen, one) for one in some]
        if seen.sampled:
            seen.hours = chosen.by_hour()
        seen.failures = chosen.failures(failed)
        if labels:
            names = [one.removeprefix(_OUT) for one in chosen.columns if one.startswith(_OUT)]
            outputs = truths.needed(names, basis.task)
            wanted = ["prediction_id", "row", *(_OUT + one for one in outputs)]
            seen.said = chosen.find(labelled, limit=SLICE_LABELS, columns=wanted)
        return seen

    seen = retry_if_replaced(asked.endpoint, asked.slice, ask)
    counts = seen.counts or [[0] * len(one["counts"]) for one in features]
    measured = quality_of_rows(seen.said, labels, seen.rows, positive, basis)
    measured.labels_left_out = labels_left_out
    return _Sliced(seen.rows, seen.sampled, _both(seen), _judged(features, counts), measured)


def _where(
    asked: ReportQuery, chosen: SelectionFilters, revision: str | None, status: str
) -> ParquetConditions:
    where = condition(asked.endpoint, chosen, status=status)
    return where if revision is None else where.fact("revision", "=", revision)


def _both(seen: _SliceData) -> list[HourPoint]:
    """Return hours with what was answered in them and what failed."""
    found = {one["hour"]: HourPoint(**one, failed=0, refused=0) for one in seen.hours}
    for one in seen.failures:
        point = found.setdefault(one["hour"], HourPoint(hour=one["hour"], predictions=0))
        point.failed, point.refused = one["failed"], one["refused"]
    return [point for _, point in sorted(found.items())]


def _counts(chosen: Flat, base: Mapping[str, Any]) -> list[int]:
    name = base["name"]
    if name not in chosen.columns:
        return [0] * len(base["counts"])
    if base["kind"] == "number":
        if chosen.columns[name] != "DOUBLE":
            return [0] * len(base["counts"])
        return chosen.numbers(name, base["edges"])
    place = {one: at for at, one in enumerate(base["categories"])}
    rare = len(place)
    place |= dict.fromkeys(base["others"], rare)
    counts = [0] * (rare + 3)
    for value, times in chosen.names(name).items():
        plain = value.removesuffix(".0") if value is not None else None
        counts[rare + 2 if plain is None else place.get(plain, rare + 1)] += times
    return counts


def _judged(
    features: Sequence[Mapping[str, Any]], counts: Sequence[Sequence[int]]
) -> list[FeatureOut]:
    p_values = adjusted(
        [psi_p_value(base["counts"], mine) for base, mine in zip(features, counts, strict=True)]
    )
    found = []
    for base, mine, p in zip(features, counts, p_values, strict=True):
        rows = sum(mine)
        verdict = VerdictName.STEADY
        if rows < ENOUGH or sum(base["counts"]) < ENOUGH:
            verdict = VerdictName.NOT_ENOUGH_DATA
        elif p < 0.01 and share_moved(base["counts"], mine) >= 0.1:
            verdict = VerdictName.DIFFERENT
        found.append(_feature(base, mine, verdict, p if rows >= ENOUGH else None))
    return _ranked(found)


def _labels_between(asked: ReportQuery) -> tuple[dict[tuple[str, int], Any], int]:
    """Return the newest labels of the span, and how many older ones are left out."""
    rows = Label.objects.filter(
        endpoint=asked.endpoint,
        is_current=True,
        hour__gt=asked.since - timedelta(hours=1),
        hour__lt=asked.until,
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


def alert_out(one: Alert, revisions: Mapping[str, Revision]) -> AlertOut:
    """Describe an alert."""
    revision = revisions.get(one.revision_id)
    return AlertOut(
        id=one.pk,
        kind=one.kind,
        subject=one.subject,
        state=one.state,
        reason=one.reason,
        revision=revision.number if revision is not None else None,
        created_at=one.created_at,
        seen_at=one.seen_at,
        snoozed_until=one.snoozed_until,
        resolved_at=one.resolved_at,
    )
