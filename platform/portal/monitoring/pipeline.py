"""Monitoring pipeline: ingests predictions, summarizes them, compares windows, raises alerts.

One pass over all endpoints, repeated by a periodic task of the control worker. After an
interruption the next pass continues from the state in the database. Heavy work runs in the process
of an `Analyst`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from portal.core import clock
from portal.core.ids import new_id
from portal.endpoints.models import Endpoint, Revision
from portal.monitoring import alerting
from portal.monitoring.analyst import AnalysisFailed, Analyst, analyst
from portal.monitoring.baselines import record_baselines, record_first
from portal.monitoring.label_basis import (
    infer_basis,
    is_outdated,
    newest_revision,
    observe_outputs,
    stored_basis,
)
from portal.monitoring.models import (
    BaselineRecord,
    CapturedHour,
    DriftWindow,
    HourSummary,
    Label,
    Monitor,
)
from portal.monitoring.monitor_settings import monitor_of
from portal.monitoring.paths import (
    HOUR,
    captured_endpoints,
    flat_hour,
    hour_of_prediction,
    parts_of,
    raw_hour,
    raw_hours,
)
from portal.registry.models import VersionRecord
from slipway.schemas.monitoring import MonitorSettings
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
_CLOSE_AFTER = timedelta(minutes=10)
_WATERMARK = timedelta(seconds=3)
_FIRST_ENOUGH = 1_000
_FILES_AT_ONCE = 600
_OWN_IDS_AT_ONCE = 2_000
_STALE_AT_ONCE = 48


@dataclass(frozen=True)
class EndpointPass:
    """An endpoint in one pass, with the baselines of its revisions."""

    endpoint: Endpoint
    monitor: Monitor
    settings: MonitorSettings
    revisions: Mapping[str, Revision]
    baselines: dict[str, BaselineRecord]


def process_all() -> int:
    """Ingest and evaluate new predictions of every endpoint. Returns the number processed."""
    known = captured_endpoints()
    looked = 0
    with analyst() as analyst_process:
        record_baselines(analyst_process)
        for endpoint in Endpoint.objects.present().select_related("project").order_by("pk"):
            if endpoint.pk in known:
                looked += process_endpoint(endpoint, analyst_process)
            else:
                alerting.update_alerts(endpoint)
    return looked


def process_endpoint(endpoint: Endpoint, analyst_process: Analyst) -> bool:
    """Process one endpoint. Returns whether it succeeded."""
    monitor = monitor_of(endpoint)
    fault = ""
    try:
        endpoint_pass = _new_pass(endpoint, monitor)
        for hour, files in raw_hours(endpoint.pk):
            _ingest_hour(endpoint_pass, analyst_process, hour, files)
        _find_own_ids(endpoint, analyst_process)
        _summarize_hours(endpoint_pass, analyst_process)
        _cut_windows(endpoint_pass, analyst_process)
        _close(endpoint, analyst_process)
    except (AnalysisFailed, OSError) as error:
        fault = shorten(f"Predictions could not be analysed: {error}.", 500)
        log.warning("endpoint_not_analysed", endpoint=endpoint.pk, reason=fault)
    Monitor.objects.filter(pk=monitor.pk).update(processed_at=clock.now(), fault=fault)
    alerting.update_alerts(endpoint)
    return not fault


def _new_pass(endpoint: Endpoint, monitor: Monitor) -> EndpointPass:
    revisions = {revision.pk: revision for revision in endpoint.revisions.defer("served")}
    return EndpointPass(
        endpoint,
        monitor,
        MonitorSettings.model_validate(monitor.settings),
        revisions,
        baselines_of(endpoint, revisions.values()),
    )


def baselines_of(endpoint: Endpoint, revisions: Any) -> dict[str, BaselineRecord]:
    """Return the baseline of each revision that has one."""
    baselines: dict[str, BaselineRecord] = {}
    listed = list(revisions)
    own = BaselineRecord.objects.filter(revision_id__in=[item.pk for item in listed])
    for row in own:
        baselines[row.revision_id] = row
    records = VersionRecord.objects.filter(
        line__project=endpoint.project_id, line__name__in={item.model for item in listed}
    ).order_by("pk")
    by_version = {
        (record.line.name, str(record.number)): record.pk
        for record in records.select_related("line")
    }
    made = BaselineRecord.objects.exclude(source="").filter(record__in=by_version.values())
    by_record = {row.record_id: row for row in made}
    for item in listed:
        record_id = by_version.get((item.model, item.model_version))
        if record_id is not None and record_id in by_record:
            baselines[item.pk] = by_record[record_id]
    return baselines


def _ingest_hour(
    endpoint_pass: EndpointPass, analyst_process: Analyst, hour: datetime, files: Sequence[str]
) -> None:
    row = CapturedHour.objects.filter(endpoint=endpoint_pass.endpoint, hour=hour).first()
    if row is None:
        row = CapturedHour(endpoint=endpoint_pass.endpoint, hour=hour)
    fresh = [name for name in files if name not in set(row.seen)]
    if not fresh:
        return
    folder = raw_hour(endpoint_pass.endpoint.pk, hour)
    flat = flat_hour(endpoint_pass.endpoint.pk, hour)
    for start in range(0, len(fresh), _FILES_AT_ONCE):
        some = fresh[start : start + _FILES_AT_ONCE]
        result = analyst_process.request(
            "digest",
            sources=[str(folder / name) for name in some],
            folder=str(flat),
            stem=new_id("part"),
            parts=row.parts,
            signatures={
                key: revision.signature for key, revision in endpoint_pass.revisions.items()
            },
            columns=endpoint_pass.monitor.columns,
        )
        row.parts = result["parts"]
        # Only existing raw files have to be remembered: merged ones never come back.
        row.seen = sorted({*row.seen, *some} & set(files))
        row.is_stale, row.is_closed = True, False
        with transaction.atomic():
            row.save()
            endpoint_pass.monitor.columns = result["columns"]
            endpoint_pass.monitor.unreadable += result["unreadable"]
            endpoint_pass.monitor.shortened += result["shortened"]
            endpoint_pass.monitor.save(update_fields=["columns", "unreadable", "shortened"])


def _find_own_ids(endpoint: Endpoint, analyst_process: Analyst) -> None:
    """Resolve the predictions of labels that were sent with a client's own id."""
    waiting = Label.objects.filter(endpoint=endpoint, is_own=True, prediction_id="")
    items = list(waiting.order_by("-pk").values_list("reference", flat=True)[:_OWN_IDS_AT_ONCE])
    if not items:
        return
    hours = list(CapturedHour.objects.filter(endpoint=endpoint).order_by("hour"))
    value = analyst_process.request("own_ids", paths=parts_of(hours), requested=sorted(set(items)))
    for own, prediction_id in value.items():
        hour = hour_of_prediction(prediction_id)
        labels = Label.objects.filter(endpoint=endpoint, is_own=True, reference=own)
        labels.update(prediction_id=prediction_id, hour=hour)
        _mark_stale(endpoint, hour)


def _mark_stale(endpoint: Endpoint, hour: datetime | None) -> None:
    if hour is not None:
        near = (hour - HOUR, hour, hour + HOUR)
        CapturedHour.objects.filter(endpoint=endpoint, hour__in=near).update(is_stale=True)


def _summarize_hours(endpoint_pass: EndpointPass, analyst_process: Analyst) -> None:
    if is_outdated(endpoint_pass.monitor):
        infer_basis(
            endpoint_pass.endpoint, endpoint_pass.monitor, newest_revision(endpoint_pass.endpoint)
        )
    stale = CapturedHour.objects.filter(endpoint=endpoint_pass.endpoint, is_stale=True)
    newest = stale.order_by("-hour").first()
    if newest is not None:
        observe_outputs(
            endpoint_pass.endpoint,
            endpoint_pass.monitor,
            endpoint_pass.revisions,
            newest,
            analyst_process,
        )
    for row in stale.order_by("-hour")[:_STALE_AT_ONCE]:
        # First, so that concurrent changes mark it as stale again.
        CapturedHour.objects.filter(pk=row.pk).update(is_stale=False)
        try:
            _sum_up_hour(endpoint_pass, analyst_process, row)
        except AnalysisFailed:
            CapturedHour.objects.filter(pk=row.pk).update(is_stale=True)
            raise


def _sum_up_hour(endpoint_pass: EndpointPass, analyst_process: Analyst, row: CapturedHour) -> None:
    result = analyst_process.request(
        "summarise",
        paths=parts_of([row]),
        baselines={key: base.features for key, base in endpoint_pass.baselines.items()},
        calibrations={
            key: base.calibration
            for key, base in endpoint_pass.baselines.items()
            if base.calibration
        },
        labels=_labels_near(endpoint_pass.endpoint, row.hour),
        positive=endpoint_pass.settings.positive,
        basis=stored_basis(endpoint_pass.monitor).as_json(),
    )
    with transaction.atomic():
        for revision_id, details in result.items():
            HourSummary.objects.update_or_create(
                endpoint=endpoint_pass.endpoint,
                hour=row.hour,
                revision_id=revision_id,
                defaults={
                    name: details[name]
                    for name in (
                        *("rows", "predictions", "labelled", "latency_ms", "counts"),
                        *("quality", "estimate"),
                    )
                },
            )
        gone = HourSummary.objects.filter(endpoint=endpoint_pass.endpoint, hour=row.hour)
        gone.exclude(revision_id__in=list(result)).delete()


def _labels_near(endpoint: Endpoint, hour: datetime) -> list[list[Any]]:
    """Return the current labels for predictions of an hour. Ids are some seconds older."""
    near = Label.objects.filter(
        endpoint=endpoint, hour__in=(hour - HOUR, hour), is_current=True
    ).exclude(prediction_id="")
    values: dict[tuple[str, int], Any] = {}
    for prediction, place, value in near.order_by("created_at", "pk").values_list(
        "prediction_id", "row", "value"
    ):
        values[prediction, place] = value
    return [[prediction, place, value] for (prediction, place), value in values.items()]


def _cut_windows(endpoint_pass: EndpointPass, analyst_process: Analyst) -> None:
    until = clock.now() - _WATERMARK
    hours = list(CapturedHour.objects.filter(endpoint=endpoint_pass.endpoint).order_by("hour"))
    newest: defaultdict[str, datetime | None] = defaultdict(lambda: None)
    for summary in HourSummary.objects.filter(endpoint=endpoint_pass.endpoint).order_by("hour"):
        newest[summary.revision_id] = summary.hour
    for revision_id, last_hour in newest.items():
        last = _last_window(endpoint_pass.endpoint, revision_id)
        if last is not None and last_hour is not None and last.ends_at >= last_hour + HOUR:
            continue
        since = last.ends_at if last is not None else hours[0].hour - HOUR
        paths = parts_of([hour for hour in hours if hour.hour + HOUR > since])
        base = endpoint_pass.baselines.get(revision_id)
        if base is None:
            made = record_first(
                analyst_process, revision_id=revision_id, paths=paths, enough=_FIRST_ENOUGH
            )
            if made is not None:
                endpoint_pass.baselines[revision_id] = made
                CapturedHour.objects.filter(endpoint=endpoint_pass.endpoint).update(is_stale=True)
            continue
        _cut(endpoint_pass, analyst_process, revision_id, base, since, until, paths)


def _last_window(endpoint: Endpoint, revision_id: str) -> DriftWindow | None:
    drift_windows = DriftWindow.objects.filter(endpoint=endpoint, revision_id=revision_id)
    return drift_windows.order_by("-ends_at").first()


def _cut(
    endpoint_pass: EndpointPass,
    analyst_process: Analyst,
    revision_id: str,
    base: BaselineRecord,
    since: datetime,
    until: datetime,
    paths: list[str],
) -> None:
    chosen = endpoint_pass.settings
    value = analyst_process.request(
        "windows",
        paths=paths,
        revision=revision_id,
        since=since.isoformat(),
        until=until.isoformat(),
        baselines=base.features,
        limits={name: getattr(chosen, name) for name in ("alpha", "share", "shift_sd", "missing")},
        window_rows=chosen.window_rows,
        at_least_s=chosen.window_at_least_s,
        at_most_s=chosen.window_at_most_s,
    )
    last = _last_window(endpoint_pass.endpoint, revision_id)
    before: list[str] = list(last.different) if last is not None else []
    for details in value:
        different = details["different"]
        try:
            with transaction.atomic():
                DriftWindow.objects.create(
                    endpoint=endpoint_pass.endpoint,
                    revision_id=revision_id,
                    starts_at=datetime.fromisoformat(details["starts_at"]),
                    ends_at=datetime.fromisoformat(details["ends_at"]),
                    rows=details["rows"],
                    failed=details["failed"],
                    features=details["features"],
                    different=different,
                    drifted=[name for name in different if name in before],
                )
        except IntegrityError:
            return  # another process cut the same window
        before = different


def _close(endpoint: Endpoint, analyst_process: Analyst) -> None:
    """Merge the parts of finished hours into one file."""
    over = CapturedHour.objects.filter(
        endpoint=endpoint, is_closed=False, hour__lt=clock.now() - HOUR - _CLOSE_AFTER
    )
    for row in over.order_by("hour")[:_STALE_AT_ONCE]:
        folder = flat_hour(endpoint.pk, row.hour)
        name = f"{new_id('hour')}.parquet"
        result = analyst_process.request("close", folder=str(folder), parts=row.parts, name=name)
        same = CapturedHour.objects.filter(pk=row.pk, parts=row.parts)
        if same.update(parts=result["parts"], is_closed=True):
            for old in set(row.parts) - set(result["parts"]):
                (folder / old).unlink(missing_ok=True)
