"""Monitoring of endpoints: how they did, labels, single predictions, alerts, selections."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from slipway.connection import Connection, Download
from slipway.errors import InvalidInput
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.monitoring import (
    LABELS_AT_ONCE,
    AlertChannelCreated,
    AlertChannelIn,
    AlertChannelOut,
    AlertOut,
    ErasureIn,
    ErasureOut,
    ExportFormat,
    LabelOut,
    LabelsIn,
    LabelsOut,
    MonitorChange,
    MonitoringOut,
    MonitorSettingsOut,
    PredictionOut,
    SelectionFilters,
    SelectionIn,
    SelectionOut,
    SnoozeIn,
)

_FIELD = re.compile(r"labels\.(\d+)(?:\.([a-z_]+))?.*")


class Monitoring:
    """Monitoring of the endpoints of a project. `endpoint` is the name of one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def show(
        self,
        endpoint: str,
        *,
        project: str,
        since: datetime | None = None,
        until: datetime | None = None,
        revision: int | None = None,
        feature: str | None = None,
        operator: str | None = None,
        value: str | float | None = None,
    ) -> MonitoringOut:
        """Return the report of an endpoint, by default for the last 24 hours.

        `feature`, `operator` and `value` cut a slice out of it, such as `age`, `>=`, 65.
        """
        query = {
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
            "revision": str(revision) if revision is not None else None,
            "feature": feature,
            "operator": operator,
            "value": str(value) if value is not None else None,
        }
        return self._connection.fetch(
            MonitoringOut, "GET", *_path(project, endpoint), "monitoring", query=query
        )

    def settings(self, endpoint: str, *, project: str) -> MonitorSettingsOut:
        """Return how an endpoint is watched."""
        segments = (*_path(project, endpoint), "monitoring", "settings")
        return self._connection.fetch(MonitorSettingsOut, "GET", *segments)

    def change(self, endpoint: str, *, project: str, **changes: Any) -> MonitorSettingsOut:
        """Change an endpoint's monitor settings by their names in `settings`. None disables."""
        body = build(MonitorChange, **changes)
        off = {name: None for name, value in changes.items() if value is None}
        body = body.model_copy(
            update={k: v for k, v in off.items() if k in type(body).model_fields}
        )
        segments = (*_path(project, endpoint), "monitoring", "settings")
        return self._connection.fetch(MonitorSettingsOut, "PATCH", *segments, body=body)

    def alerts(self, endpoint: str, *, project: str) -> Pages[AlertOut]:
        """List alerts, newest first, with those that are resolved."""
        segments = (*_path(project, endpoint), "monitoring", "alerts")
        return Pages(self._connection, segments, PageOf[AlertOut])

    def snooze(
        self, endpoint: str, alert: str, *, project: str, hours: float | None = None
    ) -> AlertOut:
        """Mute an alert for some hours, by default 24."""
        segments = (*_path(project, endpoint), "monitoring", "alerts", alert, "snooze")
        body = build(SnoozeIn, hours=hours)
        return self._connection.fetch(AlertOut, "POST", *segments, body=body)

    def channels(self, endpoint: str, *, project: str) -> list[AlertChannelOut]:
        """List the notification channels."""
        segments = (*_path(project, endpoint), "monitoring", "channels")
        return self._connection.fetch_list(AlertChannelOut, *segments)

    def add_channel(
        self, endpoint: str, kind: str, target: str, *, project: str
    ) -> AlertChannelCreated:
        """Add a notification channel: `email` to a member, `webhook` or `slack` to an https URL."""
        segments = (*_path(project, endpoint), "monitoring", "channels")
        body = build(AlertChannelIn, kind=kind, target=target)
        return self._connection.fetch(AlertChannelCreated, "POST", *segments, body=body)

    def remove_channel(self, endpoint: str, channel: str, *, project: str) -> None:
        """Remove a notification channel."""
        self._connection.send(
            "DELETE", *_path(project, endpoint), "monitoring", "channels", channel
        )

    def predictions(
        self,
        endpoint: str,
        *,
        project: str,
        prediction_id: str | None = None,
        own_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        model_version: str | None = None,
        caller: str | None = None,
        feature: str | None = None,
        operator: str | None = None,
        value: str | float | None = None,
        status: str | None = None,
    ) -> Pages[PredictionOut]:
        """Find captured predictions, newest first. Filters combine. `caller` is a key's id.

        `status` is `answered`, `failed`, or a status such as "503".
        """
        query = {
            "prediction_id": prediction_id,
            "own_id": own_id,
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
            "model_version": model_version,
            "caller": caller,
            "feature": feature,
            "operator": operator,
            "value": str(value) if value is not None else None,
            "status": status,
        }
        segments = (*_path(project, endpoint), "predictions")
        return Pages(self._connection, segments, PageOf[PredictionOut], query)

    def export(
        self,
        endpoint: str,
        *,
        project: str,
        format: ExportFormat = "csv",  # noqa: A002  (the API's parameter)
        selection: str | None = None,
        **filters: Any,
    ) -> AbstractContextManager[Download]:
        """Receive captured predictions as one file: `with … as export: for chunk in export`.

        `filters` are those of `predictions`. `export.number("x-slipway-rows", None)` is the number
        of rows, and `x-slipway-rows-left-out` that of rows that are erased or being erased.
        `selection` is the id of one, which is exported whole.
        """
        body = build(SelectionFilters, **_as_filters(filters))
        query = body.model_dump(mode="json", exclude_unset=True)
        for name in query.pop("prediction_ids", None) or ():
            query["prediction_id"] = name
        segments = (*_path(project, endpoint), "predictions", "export")
        return self._connection.stream(
            *segments, query={"format": format, "selection": selection, **query}
        )

    def label(
        self, endpoint: str, labels: Sequence[Mapping[str, Any]], *, project: str
    ) -> LabelsOut:
        """Label any number of predictions with their true values.

        Each is a mapping of `prediction_id` or `own_id`, `value`, and `row` in requests of several.
        """
        total = LabelsOut(added=0, same=0, changed=0)
        for start in range(0, len(labels), LABELS_AT_ONCE):
            some = labels[start : start + LABELS_AT_ONCE]
            total = _together(total, self._send_labels(endpoint, some, project))
        return total

    def label_file(self, endpoint: str, file: str | Path, *, project: str) -> LabelsOut:
        """Send the labels of a CSV, JSON lines or Parquet file. Empty values are skipped.

        Its columns are `prediction_id` or `own_id`, `value`, and `row` in requests of several rows.
        Values are compared by the type of the endpoint's labels, so that 007 stays a class of text.
        Raises InvalidInput with line, column and value for one that cannot be of that type.
        """
        rows = _label_reader().read_labels(Path(file))
        total = LabelsOut(added=0, same=0, changed=0)
        for start in range(0, len(rows), LABELS_AT_ONCE):
            some = rows[start : start + LABELS_AT_ONCE]
            try:
                done = self._send_labels(endpoint, [row.label for row in some], project)
            except InvalidInput as error:
                raise _with_position(error, Path(file), some, start) from None
            total = _together(total, done)
        return total

    def _send_labels(
        self, endpoint: str, labels: Sequence[Mapping[str, Any]], project: str
    ) -> LabelsOut:
        body = build(LabelsIn, labels=[dict(label) for label in labels])
        return self._connection.fetch(
            LabelsOut, "POST", *_path(project, endpoint), "labels", body=body
        )

    def labels(self, endpoint: str, *, project: str) -> Pages[LabelOut]:
        """List labels, newest first, with the versions that others replaced."""
        segments = (*_path(project, endpoint), "labels")
        return Pages(self._connection, segments, PageOf[LabelOut])

    def select(
        self,
        endpoint: str,
        dataset: str,
        *,
        project: str,
        only_labelled: bool | None = None,
        **filters: Any,
    ) -> SelectionOut:
        """Turn predictions with their labels into the next version of a dataset.

        `filters` are those of `predictions`, and `prediction_ids`.
        """
        body = build(
            SelectionIn,
            dataset=dataset,
            filters=build(SelectionFilters, **filters),
            only_labelled=only_labelled,
        )
        segments = (*_path(project, endpoint), "selections")
        return self._connection.fetch(SelectionOut, "POST", *segments, body=body)

    def selections(self, endpoint: str, *, project: str) -> Pages[SelectionOut]:
        """List which predictions became data, newest first."""
        segments = (*_path(project, endpoint), "selections")
        return Pages(self._connection, segments, PageOf[SelectionOut])

    def erase(
        self,
        endpoint: str,
        *,
        project: str,
        prediction_id: str | None = None,
        own_id: str | None = None,
    ) -> ErasureOut:
        """Erase the predictions of a key, and their labels, from everything that is stored."""
        body = build(ErasureIn, prediction_id=prediction_id, own_id=own_id)
        segments = (*_path(project, endpoint), "erasures")
        return self._connection.fetch(ErasureOut, "POST", *segments, body=body)

    def erasures(self, endpoint: str, *, project: str) -> Pages[ErasureOut]:
        """List erasures with their state, newest first."""
        segments = (*_path(project, endpoint), "erasures")
        return Pages(self._connection, segments, PageOf[ErasureOut])


def _as_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in filters.items() if value is not None}
    if "prediction_id" in given:
        given["prediction_ids"] = [given.pop("prediction_id")]
    if "value" in given:
        given["value"] = str(given["value"])
    return given


def _together(labels: LabelsOut, other: LabelsOut) -> LabelsOut:
    return LabelsOut(
        added=labels.added + other.added,
        same=labels.same + other.same,
        changed=labels.changed + other.changed,
        empty=labels.empty + other.empty,
    )


def _label_reader() -> Any:
    try:
        return import_module("slipway.label_files")
    except ImportError as error:
        raise InvalidInput(
            f"Reading a file of labels needs pyarrow, which cannot be imported: {error}.",
            code="needs_pyarrow",
            next_step="Install pyarrow, or send the labels by Monitoring.label.",
        ) from None


def _with_position(
    error: InvalidInput, file: Path, rows: Sequence[Any], before: int
) -> InvalidInput:
    """Return the error of one label with its place in the file."""
    match = _FIELD.fullmatch(error.field or "")
    if match is None or int(match[1]) >= len(rows):
        return error
    sent = f" The {before:,} labels above were sent." if before else " No label was sent."
    return InvalidInput(
        f"{file}, {rows[int(match[1])].place}, column {match[2] or 'value'}: {error.message}",
        code=error.code,
        field="file",
        next_step=f"{error.next_step}{sent}",
    )


def _path(project: str, endpoint: str) -> tuple[str, str, str, str]:
    return ("projects", project, "endpoints", endpoint)
