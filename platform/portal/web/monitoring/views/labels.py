"""Upload of label files for the predictions of an endpoint."""

from typing import Any

from django.contrib import messages
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.monitoring.services.label_uploads import label_by_file
from portal.monitoring.services.labels import LabelCounts
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.monitoring.forms import LabelUpload
from slipway.schemas.accounts import Role, Scope

_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_labels(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Store the labels of an uploaded file."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = LabelUpload(sent(request), request.FILES or None)

    def store(data: dict[str, Any]) -> LabelCounts:
        file = data["file"]
        return label_by_file(
            endpoint=endpoint_row, by=by, name=file.name or "labels.csv", chunks=file.chunks()
        )

    done = submit_form(request, form, store)
    if done:
        counts = done.result
        parts = [
            f"{intcomma(counts.added)} added",
            f"{intcomma(counts.changed)} changed",
            f"{intcomma(counts.same)} already known",
            f"{intcomma(counts.empty)} empty and skipped",
        ]
        text = f"Labels: {', '.join(parts)}. Quality is measured within a minute."
        messages.success(request, text)
        return redirect("project_endpoint_monitoring", project, endpoint)
    context = {"endpoint": endpoint_row, "form": form, "area": "projects", "section": "endpoints"}
    return render(request, "web/monitoring/labels.html", context, status=status_of(form))
