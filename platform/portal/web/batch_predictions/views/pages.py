"""Batch predictions of a project: the list, and the page of one."""

from dataclasses import dataclass
from typing import Self

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.batch_predictions.gates import BatchPredictionRole, gated_batch_prediction
from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services.outputs import output_version
from portal.batch_predictions.summaries import summary_of
from portal.core.policy import guarded_by
from portal.datasets.models import Version
from portal.pipelines.pipeline_summaries import step_of_job
from portal.web.base.list_query import listing, search_parameter
from portal.web.jobs.presenters import JobStatus, job_statuses
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.batch_predictions import BatchPredictionOut

WHERE = {"area": "projects", "section": "models"}
_ROWS = 20


@dataclass(frozen=True)
class BatchRow:
    """A line of the list. `version` is the output, None before its end."""

    prediction: BatchPrediction
    it: JobStatus
    version: Version | None

    @classmethod
    def of(cls, prediction: BatchPrediction, status: JobStatus) -> Self:
        """Return the line of a batch prediction."""
        return cls(prediction, status, output_version(prediction))


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_batch_predictions(request: HttpRequest, project: str) -> HttpResponse:
    """List the batch predictions, newest first."""
    predictions = BatchPrediction.objects.of_project(gated_project(request))
    predictions = predictions.prefetch_related("job__workload__leases__node")
    shown = listing(request, predictions.matching(search_parameter(request, "q")), limit=_ROWS)
    items = shown.page.items
    statuses = job_statuses([item.job for item in items], require_principal(request).user)
    rows = [BatchRow.of(item, it) for item, it in zip(items, statuses, strict=True)]
    context = {
        "listing": shown,
        "region": "batch-predictions",
        "rows": rows,
        "any_active": any(row.it.is_active for row in rows),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/batch_predictions/list.html", context | WHERE)


@guarded_by(BatchPredictionRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_batch_prediction(
    request: HttpRequest, project: str, batch_prediction: str
) -> HttpResponse:
    """Show a batch prediction: state and reason, what it reads and makes, counts and cost."""
    prediction = gated_batch_prediction(request)
    viewer = require_principal(request).user
    (it,) = job_statuses([prediction.job], viewer)
    summary: BatchPredictionOut = summary_of(prediction, Explainer(viewer))
    context = {
        "batch_prediction": prediction,
        "workload": prediction.job.workload,
        "it": it,
        "summary": summary,
        "version": output_version(prediction),
        "total": prediction.rows,
        "step_run": step_of_job(prediction.pk),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/batch_predictions/batch_prediction.html", context | WHERE)
