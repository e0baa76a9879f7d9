"""Operations on batch predictions."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import SearchParameters, page_of
from portal.batch_predictions.gates import (
    BatchPredictionRole,
    OwnBatchPrediction,
    gated_batch_prediction,
)
from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services import outputs
from portal.batch_predictions.services.submission import (
    quote_prediction,
    start_prediction,
)
from portal.batch_predictions.summaries import summary_of
from portal.core.pagination import Page, paginate
from portal.core.streams import ByteStream, release_connection
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.batch_predictions import (
    BatchPredictionIn,
    BatchPredictionOut,
    BatchPredictionQuote,
    OutputStatus,
    PredictionOutput,
    PredictionSpec,
)

router = Router(tags=["Batch predictions"])
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_SEE = BatchPredictionRole(Role.VIEWER, Scope.WORKLOADS_READ)
_ALL = "/projects/{project}/batch-predictions"
_ONE = "/projects/{project}/batch-predictions/{batch_prediction}"


@router.get(_ALL, auth=gate(_SEE_ALL), response=PageOf[BatchPredictionOut])
def list_batch_predictions(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[BatchPredictionOut]:
    """List the batch predictions of a project, newest first.

    `q` searches in the names of models, data and outputs.
    """
    predictions = BatchPrediction.objects.of_project(gated_project(request)).matching(query.q)
    page: Page[BatchPrediction] = paginate(predictions, cursor=query.cursor, limit=query.limit)
    explainer = Explainer(require_principal(request).user)
    return page_of(page, lambda prediction: summary_of(prediction, explainer))


@router.post(_ALL, auth=gate(_RUN), response={201: BatchPredictionOut})
def create_batch_prediction(
    request: HttpRequest, project: str, payload: BatchPredictionIn
) -> Status[BatchPredictionOut]:
    """Predict a dataset with a version of a model: a job that makes a version of a dataset."""
    by, project_row = require_principal(request).user, gated_project(request)
    made = start_prediction(project=project_row, by=by, requested=payload)
    fresh = BatchPrediction.objects.of_project(project_row).get(pk=made.pk)
    return Status(201, summary_of(fresh, Explainer(by)))


@router.post(f"{_ALL}/quote", auth=gate(_RUN), response=BatchPredictionQuote)
def quote_batch_prediction(
    request: HttpRequest, project: str, payload: BatchPredictionIn
) -> BatchPredictionQuote:
    """Get the price of a batch prediction and the versions it would use. Nothing is started."""
    by = require_principal(request).user
    return quote_prediction(project=gated_project(request), by=by, requested=payload)


@router.get(_ONE, auth=gate(_SEE), response=BatchPredictionOut)
def get_batch_prediction(
    request: HttpRequest, project: str, batch_prediction: str
) -> BatchPredictionOut:
    """Get a batch prediction by the id of its job, with its counts and its output."""
    explainer = Explainer(require_principal(request).user)
    return summary_of(gated_batch_prediction(request), explainer)


@router.get(f"{_ONE}/spec", auth=gate(OwnBatchPrediction()), response=PredictionSpec)
def get_prediction_spec(
    request: HttpRequest, project: str, batch_prediction: str
) -> PredictionSpec:
    """Get what the job has to do. Only the job itself may."""
    return outputs.spec_of(gated_batch_prediction(request))


@router.get(f"{_ONE}/files/{{int:number}}", auth=gate(OwnBatchPrediction()), response=None)
def download_predicting_model_file(
    request: HttpRequest, project: str, batch_prediction: str, number: int
) -> ByteStream:
    """Download a file of the model. Only the job itself may."""
    pieces, size = outputs.model_file(gated_batch_prediction(request), number)
    release_connection()
    answer = ByteStream(pieces, content_type="application/octet-stream")
    answer.headers["Content-Length"] = str(size)
    return answer


@router.get(f"{_ONE}/output", auth=gate(OwnBatchPrediction()), response=OutputStatus)
def get_prediction_output(
    request: HttpRequest, project: str, batch_prediction: str
) -> OutputStatus:
    """Get the state of the output. Only the job itself may."""
    return outputs.status_of(gated_batch_prediction(request))


@router.put(f"{_ONE}/output", auth=gate(OwnBatchPrediction()), response=OutputStatus)
def record_prediction_output(
    request: HttpRequest, project: str, batch_prediction: str, payload: PredictionOutput
) -> OutputStatus:
    """Report the draft with the predictions and its counts. Only the job itself may, once."""
    return outputs.status_of(outputs.record_output(gated_batch_prediction(request), payload))
