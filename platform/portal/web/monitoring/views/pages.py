"""Monitoring of an endpoint: how it does, its single predictions, alerts, and what follows."""

from datetime import timedelta
from typing import Any, get_args

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.gates import gated_role
from portal.accounts.principal import require_principal
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.endpoints.incidents import recent_incidents
from portal.endpoints.models import Endpoint
from portal.monitoring.exports import export_answer
from portal.monitoring.models import AlertChannel, Selection
from portal.monitoring.monitor_settings import settings_of
from portal.monitoring.prediction_search import filters_of, search
from portal.monitoring.report import SLICE_LABELS, build_report_query, view
from portal.monitoring.selection_exports import selection_answer
from portal.monitoring.services.monitors import (
    add_channel,
    change_watching,
    remove_channel,
    snooze_alert,
)
from portal.monitoring.services.selections import select_predictions
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.monitoring.forms import TASKS, MonitorSettingsForm, NewChannel, SelectionForm
from portal.web.monitoring.presenters import (
    MOST_SHOWN,
    PredictionListRow,
    alerts_of,
    charts_of,
    confusion_of,
    describe_verdict,
    figures_of,
    lines_of,
    rows_of,
    tag_of,
    withheld_of,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.monitoring import (
    AlertChannelIn,
    ExportFormat,
    MonitorChange,
    SelectionFilters,
    SelectionIn,
)

SPANS = (("1", "24 hours"), ("7", "7 days"), ("30", "30 days"))
_INCIDENTS = 20
STATUSES = ("answered", "failed")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "endpoints"}
_SELECTIONS = 5
_ROWS = 50
_FEATURES = 25
_LONGEST_ROW = 5


@guarded_by(_SEE)
@require_safe
def project_endpoint_monitoring(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show how an endpoint did in a span, of a revision or a slice if one is chosen."""
    endpoint_row = gated_endpoint(request)
    days = (
        search_parameter(request, "days")
        if search_parameter(request, "days") in dict(SPANS)
        else "1"
    )
    revision = search_parameter(request, "revision")
    feature, value = search_parameter(request, "feature"), search_parameter(request, "value")
    shown = view(
        build_report_query(
            endpoint_row,
            since=clock.now() - timedelta(days=int(days)),
            revision=_number(revision) if revision else None,
            feature=feature or None,
            operator=search_parameter(request, "operator") or "=",
            value=value if feature else None,
        )
    )
    chosen = search_parameter(request, "show")
    quality_point = next((it for it in shown.features if it.name == chosen), None)
    quality_point = quality_point or (shown.features[0] if shown.features else None)
    features = rows_of(shown.features)
    confusion = confusion_of(shown.quality)
    context = {
        "endpoint": endpoint_row,
        "shown": shown,
        "incidents": shortlist(recent_incidents(endpoint_row), _INCIDENTS),
        "capture_total": shown.captured + shown.uncaptured,
        "verdict": tag_of(shown.verdict),
        "words": describe_verdict(shown.verdict),
        "features": features[: len(features) if search_parameter(request, "all") else _FEATURES],
        "features_left": 0
        if search_parameter(request, "all")
        else max(0, len(features) - _FEATURES),
        "query_of_all": _query_showing_all(request),
        "alerts": alerts_of(shown.alerts),
        "feature": quality_point,
        "figures": figures_of(shown.quality),
        "withheld": withheld_of(shown.quality),
        "confusion": confusion,
        "is_confusion_hidden": bool(shown.quality.confusion) and confusion is None,
        "most_shown_classes": MOST_SHOWN,
        "labels_in_slice": SLICE_LABELS,
        "task": TASKS.get(shown.task.task, "Unknown"),
        "charts": charts_of(shown, quality_point),
        "has_quality": any(
            quality_point.estimate is not None or quality_point.figures
            for quality_point in shown.quality_by_hour
        ),
        "error_percent": f"{100 * shown.error_rate:.3g}" if shown.error_rate else "",
        "days": days,
        "spans": SPANS,
        "operators": OPERATORS,
        "numbers": list(
            endpoint_row.revisions.values_list("number", flat=True).order_by("-number")
        ),
        "may_change": gated_role(request).at_least(Role.CONTRIBUTOR),
        **_WHERE,
    }
    return render(request, "web/monitoring/monitoring.html", context)


def _query_showing_all(request: HttpRequest) -> str:
    address = request.GET.copy()
    address["all"] = "1"
    return address.urlencode()


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < len(text) < 10:
        return int(text)
    raise InvalidInput(
        f"{text[:20]} is not a revision number.",
        field="revision",
        next_step="Choose a revision from the list.",
    )


@guarded_by(_SEE)
@require_safe
def project_endpoint_predictions(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Find single predictions, by id, own id, version, caller or a value."""
    endpoint_row = gated_endpoint(request)
    form = SelectionForm(None)
    return _predictions(request, endpoint_row, form)


@guarded_by(_CHANGE)
@require_POST
def project_endpoint_select(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Turn the predictions that match into the next version of a dataset."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = SelectionForm(sent(request))

    def select(data: dict[str, Any]) -> Selection:
        filters = _filters(request)
        requested = SelectionIn(dataset=data["dataset"], filters=filters)
        return select_predictions(endpoint=endpoint_row, by=by, spec=requested)

    done = submit_form(request, form, select)
    if done:
        name = done.result.dataset.name
        messages.success(request, f"{name} gets a new version within a minute.")
        return redirect("project_endpoint_predictions", project, endpoint)
    return _predictions(request, endpoint_row, form)


@guarded_by(_SEE)
@require_safe
def project_endpoint_predictions_export(
    request: HttpRequest, project: str, endpoint: str
) -> HttpResponseBase:
    """Download the predictions that match as CSV or JSON lines."""
    file_format = search_parameter(request, "format") or "csv"
    for known in get_args(ExportFormat):
        if file_format == known and (selection := search_parameter(request, "selection")):
            return selection_answer(gated_endpoint(request), selection, known)
        if file_format == known:
            return export_answer(gated_endpoint(request), _filters(request), known)
    raise InvalidInput(
        "Predictions can be exported as csv or jsonl.",
        field="format",
        next_step="Choose a format on the predictions page.",
    )


def _filters(request: HttpRequest) -> SelectionFilters:
    names = ("own_id", "model_version", "caller", "feature", "value", "operator", "since", "until")
    filters = filters_of({name: search_parameter(request, name) for name in (*names, "status")})
    prediction = search_parameter(request, "prediction_id")
    if prediction:
        filters.prediction_ids = [prediction]
    return filters


def _row(request: HttpRequest) -> int:
    """Return which row of a prediction is shown in full."""
    text = search_parameter(request, "row")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LONGEST_ROW else 0


def _find_row(endpoint: Endpoint, filters: SelectionFilters, row: int) -> PredictionListRow | None:
    """Return one row of a prediction. Its rows are returned in order."""
    rows, _ = search(endpoint, filters, limit=row + 1)
    return next((line for line in lines_of(rows[-1:]) if line.row.row == row), None)


def _predictions(request: HttpRequest, endpoint: Endpoint, form: SelectionForm) -> HttpResponse:
    cursor = request.GET.get("cursor") or None
    filters = _filters(request)
    rows, more = search(endpoint, filters, cursor=cursor, limit=_ROWS)
    address = request.GET.copy()
    address.pop("cursor", None)
    made = Selection.objects.filter(endpoint=endpoint).select_related("dataset", "version")
    context = {
        "endpoint": endpoint,
        "lines": lines_of(rows),
        "one": _find_row(endpoint, filters, _row(request)) if filters.prediction_ids else None,
        "more": more,
        "query": address.urlencode(),
        "filtered": bool(address),
        "operators": OPERATORS,
        "statuses": STATUSES,
        "form": form,
        "selections": shortlist(made.order_by("-pk"), _SELECTIONS),
        "may_change": gated_role(request).at_least(Role.CONTRIBUTOR),
        **_WHERE,
    }
    page = "web/monitoring/predictions.html"
    return render(request, page, context, status=status_of(form))


@guarded_by(_CHANGE)
@require_POST
def project_endpoint_snooze(
    request: HttpRequest, project: str, endpoint: str, alert: str
) -> HttpResponse:
    """Mute an alert for a day."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    if one_click(
        request, lambda: snooze_alert(endpoint=endpoint_row, alert_id=alert, by=by, hours=24.0)
    ):
        messages.success(request, "Alert snoozed for a day.")
    return redirect("project_endpoint_monitoring", project, endpoint)


@guarded_by(_CHANGE)
def project_endpoint_watching(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Change thresholds and notification channels."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    watching = MonitorSettingsForm(
        sent(request), initial=MonitorSettingsForm.of(settings_of(endpoint_row))
    )

    def change(data: dict[str, Any]) -> object:
        chosen = {name: data[name] or None for name in ("task", "label_type")}
        return change_watching(
            endpoint=endpoint_row, by=by, change=MonitorChange(**(data | chosen))
        )

    if submit_form(request, watching, change):
        messages.success(request, "Limits saved.")
        return redirect("project_endpoint_watching", project, endpoint)
    return _watching(request, endpoint_row, watching, NewChannel(None))


@guarded_by(_CHANGE)
@require_POST
def project_endpoint_channel_new(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Add a notification channel. The next page shows the secret of a webhook."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = NewChannel(sent(request))

    def add(data: dict[str, Any]) -> tuple[AlertChannel, str]:
        return add_channel(endpoint=endpoint_row, by=by, spec=AlertChannelIn(**data))

    done = submit_form(request, form, add)
    watching = MonitorSettingsForm(None, initial=MonitorSettingsForm.of(settings_of(endpoint_row)))
    if not done:
        return _watching(request, endpoint_row, watching, form)
    _, secret = done.result
    if secret:
        return _watching(request, endpoint_row, watching, NewChannel(None), secret=secret)
    return redirect("project_endpoint_watching", project, endpoint)


@guarded_by(_CHANGE)
@require_POST
def project_endpoint_channel_remove(
    request: HttpRequest, project: str, endpoint: str, channel: str
) -> HttpResponse:
    """Remove a notification channel."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    remove_channel(endpoint=endpoint_row, channel_id=channel, by=by)
    return redirect("project_endpoint_watching", project, endpoint)


def _watching(
    request: HttpRequest,
    endpoint: Endpoint,
    watching: MonitorSettingsForm,
    channel: NewChannel,
    *,
    secret: str = "",
) -> HttpResponse:
    context = {
        "endpoint": endpoint,
        "form": watching,
        "channel_form": channel,
        "secret": secret,
        "channels": AlertChannel.objects.filter(endpoint=endpoint).order_by("pk"),
        "back": reverse("project_endpoint_monitoring", args=[endpoint.project.slug, endpoint.name]),
        **_WHERE,
    }
    status = max(status_of(watching), status_of(channel))
    return render(request, "web/monitoring/alerts.html", context, status=status)
