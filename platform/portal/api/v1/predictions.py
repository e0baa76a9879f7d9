"""Captured predictions: search, labels, selections, erasures."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.core.errors import InvalidInput
from portal.core.pagination import MAX_LIMIT, paginate
from portal.core.streams import ByteStream
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.monitoring.exports import export_answer
from portal.monitoring.models import Erasure, Label, Selection
from portal.monitoring.prediction_search import PredictionRow, filters_of, search
from portal.monitoring.selection_exports import selection_answer
from portal.monitoring.services.labels import label_predictions
from portal.monitoring.services.selections import erase_predictions, select_predictions
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.dates import Moment
from slipway.schemas.monitoring import (
    ErasureIn,
    ErasureOut,
    ExportFormat,
    LabelOut,
    LabelsIn,
    LabelsOut,
    PredictionOut,
    PredictionsOut,
    PredictionStatus,
    SelectionFilters,
    SelectionIn,
    SelectionOut,
)

router = Router(tags=["Predictions"])
_SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_EXPORT = {
    "responses": {
        200: {
            "description": "The rows",
            "content": {"text/csv": _BYTES, "application/jsonl": _BYTES},
        }
    }
}
_ONE = "/projects/{project}/endpoints/{endpoint}"


class FilterQuery(BaseModel):
    """Filters, all of which must match."""

    prediction_id: Annotated[Line, Field(max_length=40)] | None = None
    own_id: Annotated[Line, Field(max_length=200)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    model_version: Annotated[Line, Field(max_length=100)] | None = None
    caller: Annotated[Line, Field(max_length=64)] | None = None
    feature: Annotated[Line, Field(max_length=250)] | None = None
    operator: Literal["=", "!=", "<", "<=", ">", ">="] = "="
    value: Annotated[Line, Field(max_length=200)] | None = None
    status: PredictionStatus | None = None


class PredictionsQuery(FilterQuery):
    """Filters, and a page of the results."""

    cursor: Annotated[Line, Field(max_length=1000)] | None = None
    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)


class PredictionsExportQuery(FilterQuery):
    """Filters, and the format of the file. A `selection` has its own filters."""

    format: ExportFormat = "csv"
    selection: Annotated[Line, Field(max_length=40)] | None = None


@router.get(f"{_ONE}/predictions", auth=gate(_SEE), response=PredictionsOut)
def list_predictions(
    request: HttpRequest, project: str, endpoint: str, query: Query[PredictionsQuery]
) -> PredictionsOut:
    """List captured predictions with their labels, newest first."""
    endpoint_row = gated_endpoint(request)
    rows, more = search(endpoint_row, _filters(query), cursor=query.cursor, limit=query.limit)
    numbers = {
        revision.pk: revision.number for revision in endpoint_row.revisions.only("pk", "number")
    }
    return PredictionsOut(
        items=[prediction_out(revision, numbers) for revision in rows], next_cursor=more
    )


def _filters(query: FilterQuery) -> SelectionFilters:
    filters = filters_of(
        query.model_dump(include=set(FilterQuery.model_fields) - {"prediction_id"})
    )
    if query.prediction_id:
        filters.prediction_ids = [query.prediction_id]
    return filters


@router.get(f"{_ONE}/predictions/export", auth=gate(_SEE), response=None, openapi_extra=_EXPORT)
def export_predictions(
    request: HttpRequest, project: str, endpoint: str, query: Query[PredictionsExportQuery]
) -> ByteStream:
    """Stream captured predictions as CSV or JSON lines, newest first, exactly as sent.

    For a `selection` these are the rows of its dataset version, with the types of the signature.

    `X-Slipway-Rows` is the number of rows, `X-Slipway-Rows-Left-Out` that of those being erased.
    """
    endpoint_row = gated_endpoint(request)
    if query.selection is None:
        return export_answer(endpoint_row, _filters(query), query.format)
    if query.model_fields_set - {"selection", "format"}:
        raise InvalidInput(
            "A selection is exported completely, with its own filters.",
            field="selection",
            next_step="Remove the other filters.",
        )
    return selection_answer(endpoint_row, query.selection, query.format)


def prediction_out(prediction_row: PredictionRow, numbers: dict[str, int]) -> PredictionOut:
    """Serialize one row of a prediction."""
    return PredictionOut(
        prediction_id=prediction_row.prediction_id,
        row=prediction_row.row,
        at=prediction_row.at,
        revision=numbers.get(prediction_row.revision_id),
        model_version=prediction_row.model_version,
        caller=prediction_row.key_id,
        own_id=prediction_row.own_id,
        latency_ms=prediction_row.latency_ms,
        status=prediction_row.status,
        is_fallback=prediction_row.is_fallback,
        inputs=prediction_row.inputs,
        outputs=prediction_row.outputs,
        label=prediction_row.label,
    )


@router.post(f"{_ONE}/labels", auth=gate(_CHANGE), response=LabelsOut)
def create_labels(
    request: HttpRequest, project: str, endpoint: str, payload: LabelsIn
) -> LabelsOut:
    """Upload up to 10,000 labels (ground truth). Repeated and late labels are accepted."""
    user = require_principal(request).user
    done = label_predictions(endpoint=gated_endpoint(request), by=user, labels=payload.labels)
    return LabelsOut(added=done.added, same=done.same, changed=done.changed, empty=done.empty)


@router.get(f"{_ONE}/labels", auth=gate(_SEE), response=PageOf[LabelOut])
def list_labels(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[LabelOut]:
    """List labels, newest first, including replaced versions."""
    rows = Label.objects.filter(endpoint=gated_endpoint(request)).select_related("by")
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), label_out)


def label_out(label: Label) -> LabelOut:
    """Serialize a label."""
    return LabelOut(
        id=label.pk,
        prediction_id=label.prediction_id,
        own_id=label.reference if label.is_own else "",
        row=label.row,
        value=label.value,
        version=label.version,
        is_current=label.is_current,
        by=label.by.email,
        created_at=label.created_at,
    )


@router.post(f"{_ONE}/selections", auth=gate(_CHANGE), response={202: SelectionOut})
def create_selection(
    request: HttpRequest, project: str, endpoint: str, payload: SelectionIn
) -> Status[SelectionOut]:
    """Export predictions with their labels as the next version of a dataset."""
    user = require_principal(request).user
    made = select_predictions(endpoint=gated_endpoint(request), by=user, spec=payload)
    return Status(202, selection_out(made))


@router.get(f"{_ONE}/selections", auth=gate(_SEE), response=PageOf[SelectionOut])
def list_selections(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[SelectionOut]:
    """List exports of predictions, newest first."""
    rows = Selection.objects.filter(endpoint=gated_endpoint(request))
    rows = rows.select_related("dataset", "version", "by")
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), selection_out)


def selection_out(selection: Selection) -> SelectionOut:
    """Serialize a selection."""
    return SelectionOut(
        id=selection.pk,
        dataset=selection.dataset.name,
        version=selection.version.number if selection.version else None,
        version_state=selection.version.state if selection.version else "",
        rows=selection.rows,
        only_labelled=selection.only_labelled,
        reason=selection.reason,
        by=selection.by.email,
        created_at=selection.created_at,
        done_at=selection.done_at,
    )


@router.post(f"{_ONE}/erasures", auth=gate(_CHANGE), response={202: ErasureOut})
def create_erasure(
    request: HttpRequest, project: str, endpoint: str, payload: ErasureIn
) -> Status[ErasureOut]:
    """Erase predictions and their labels from all stored data."""
    user = require_principal(request).user
    made = erase_predictions(endpoint=gated_endpoint(request), by=user, spec=payload)
    return Status(202, erasure_out(made))


@router.get(f"{_ONE}/erasures", auth=gate(_SEE), response=PageOf[ErasureOut])
def list_erasures(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[ErasureOut]:
    """List erasures with their state, newest first."""
    rows = Erasure.objects.filter(endpoint=gated_endpoint(request)).select_related("by")
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), erasure_out)


def erasure_out(erasure: Erasure) -> ErasureOut:
    """Serialize an erasure."""
    return ErasureOut(
        id=erasure.pk,
        prediction_id="" if erasure.is_own else erasure.reference,
        own_id=erasure.reference if erasure.is_own else "",
        rows=erasure.rows,
        by=erasure.by.email,
        created_at=erasure.created_at,
        done_at=erasure.done_at,
    )
