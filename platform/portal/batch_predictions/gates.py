"""Policies of batch predictions: the project's policy, and the job itself."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject, ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.batch_predictions.models import BatchPrediction
from portal.core.errors import Forbidden, NotFound
from slipway.schemas.accounts import Role, Scope


class BatchPredictionRole(ProjectObject[BatchPrediction]):
    """Members of the project with at least `role`, for a batch prediction of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> BatchPrediction | None:
        """Return the batch prediction by the id of its job."""
        predictions = BatchPrediction.objects.of_project(project)
        return predictions.filter(pk=path["batch_prediction"]).first()


def gated_batch_prediction(request: HttpRequest) -> BatchPrediction:
    """Return the batch prediction that the gate let this request reach."""
    return BatchPredictionRole.stored(request)


@dataclass(frozen=True)
class OwnBatchPrediction:
    """The job of a batch prediction itself, by the token it runs with."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the row on the request."""
        ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE).check(request, path)
        predictions = BatchPrediction.objects.of_project(gated_project(request)).defer(None)
        prediction = predictions.filter(pk=path["batch_prediction"]).first()
        if prediction is None:
            raise NotFound
        token = require_principal(request).token
        if token is None or token.pk != prediction.pk:
            raise Forbidden(
                "Only the job of a batch prediction can read the model and report the output.",
                code="not_the_job",
                next_step="Start a batch prediction: slipway model predict MODEL --data DATASET.",
            )
        BatchPredictionRole.store(request, prediction)

    def describe(self) -> str:
        return "the job itself"
