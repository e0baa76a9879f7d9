"""One version of a model: what it is, how it compares, and its promotion."""

import re
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.endpoints.services.queries import endpoints_serving
from portal.experiments.models import LatestMetric
from portal.registry.batching import describe_batching, state_batching
from portal.registry.catalog import find_model, find_version
from portal.registry.lineage import lineage_of_version
from portal.registry.model_inspection import digest_of, examine
from portal.registry.promotion_gates import Target
from portal.registry.records import datetime_from_ms, ensure_record, rules_of
from portal.registry.services.actors import Actor
from portal.registry.services.evaluations import golden_of
from portal.registry.services.promotions import PromotionPlan, plan_promotion, promote, stage_of
from portal.registry.services.requests import (
    decide,
    is_own_work,
    request_approval,
    requests_of,
)
from portal.registry.tasks import hash_version
from portal.web.base.form_submission import one_click, sent, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.registry.forms import Promotion, VersionBatching
from portal.web.registry.presenters import lineage_columns
from portal.web.registry.views.models import WHERE
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.registry import TargetKind, Verdict
from slipway.schemas.serving import BatchingMode, ModelFormat
from slipway.schemas.truncation import shorten

_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_MOVE = ProjectRole(Role.CONTRIBUTOR, Scope.MODELS_PROMOTE)
_ALIAS = re.compile(r"\A[A-Za-z0-9_][A-Za-z0-9_-]{0,98}\Z")
_FORMATS: dict[str, str] = {
    ModelFormat.ONNX: "ONNX",
    ModelFormat.TORCH_EXPORT: "torch.export",
    ModelFormat.TORCHSCRIPT: "TorchScript",
}
_EVALUATIONS_SHOWN = 50
_ENDPOINTS_SHOWN = 20
_REQUESTS_SHOWN = 10
_FILES_SHOWN = 200


@guarded_by(_SEE)
@require_safe
def project_model_version(
    request: HttpRequest, project: str, model: str, version: int
) -> HttpResponse:
    """Show a version: signature, example, files, figures, lineage, and what it compares with."""
    project_row = gated_project(request)
    details, at = find_model(project_row.pk, model), find_version(project_row.pk, model, version)
    record = examine(ensure_record(project_row, details, at), at, later=hash_version)
    rules = rules_of(project_row)
    champion = _in_production(project_row, model, version, str(rules.stages[-2:][0]))
    requests = requests_of(project_row, model, version)
    graph = lineage_of_version(project_row, model, version)
    endpoints = shortlist(
        endpoints_serving(project_id=project_row.pk, model=model), _ENDPOINTS_SHOWN
    )
    context = {
        "model": details,
        "version": at,
        "number_text": str(at.number),
        "record": record,
        "stage": stage_of(record, rules),
        "targets": [stage for stage in rules.stages if stage != stage_of(record, rules)],
        "created": datetime_from_ms(at.created_ms),
        "golden": golden_of(record),
        "batching": describe_batching(record, has_golden=golden_of(record) is not None),
        "batching_form": VersionBatching(initial={"batching": record.given_batching}),
        "format_name": _FORMATS.get(record.format, record.format),
        "digest": digest_of(record),
        "total_bytes": sum(size for _, size, _ in record.files),
        "evaluations": record.evaluations.select_related("recorded_by")[:_EVALUATIONS_SHOWN],
        "evaluations_left_out": max(0, record.evaluations.count() - _EVALUATIONS_SHOWN),
        "requests": requests[:_REQUESTS_SHOWN],
        "requests_left_out": max(0, requests.count() - _REQUESTS_SHOWN),
        "files_left_out": len(record.files[_FILES_SHOWN:]),
        "example": shorten(record.example, 4000),
        "files": record.files[:_FILES_SHOWN],
        "lineage_left_out": graph.left_out,
        "lineage": lineage_columns(project_row, graph),
        "lineage_edges": [[edge.source, edge.target] for edge in graph.edges],
        "champion": champion,
        "compared": _compared(project_row, at.run_id, champion.run_id) if champion else [],
        "endpoints": endpoints,
        "deploy_url": _deploy_url(project_row, model, version, [it.name for it in endpoints]),
        "may_move": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_decide": gated_role(request).at_least(Role.MAINTAINER),
    }
    return render(request, "web/models/version.html", context | WHERE)


def _deploy_url(project: Project, model: str, number: int, endpoints: list[str]) -> str:
    """Return the form that deploys a version, or the choice between several endpoints."""
    if len(endpoints) > 1:
        return "#serving"
    query = urlencode({"model": model, "version": str(number)})
    if endpoints:
        address = reverse("project_endpoint_promote", args=[project.slug, endpoints[0]])
    else:
        address = reverse("project_endpoint_new", args=[project.slug])
    return f"{address}?{query}"


def _in_production(project: Project, model: str, number: int, stage: str) -> Any:
    """Return the version that is in the last stage but one now, unless it is this one."""
    target = Target(TargetKind.STAGE, stage)
    plan = plan_promotion(project=project, model=model, number=number, target=target)
    return find_version(project.pk, model, plan.replaces) if plan.replaces else None


def _compared(project: Project, ours: str, theirs: str) -> list[tuple[str, Any, Any]]:
    """Return the metrics of two runs side by side: name, ours, theirs. None was not logged."""
    runs = [run for run in (ours, theirs) if run]
    latest_metrics = LatestMetric.objects.filter(
        run__in=runs, run__experiment__workspace=project.pk
    ).order_by("key")
    values: dict[str, dict[str, float]] = {}
    for row in latest_metrics:
        values.setdefault(row.key, {})[row.run_id] = row.number
    return [(key, its.get(ours), its.get(theirs)) for key, its in values.items()]


@guarded_by(_WRITE)
@require_POST
def project_model_batching(
    request: HttpRequest, project: str, model: str, version: int
) -> HttpResponse:
    """State how requests to a version that wait together are predicted."""
    owner = gated_project(request)
    form = VersionBatching(request.POST)
    if not form.is_valid():
        raise InvalidInput(
            "This is not a batching mode.",
            field="batching",
            next_step="Choose auto, rows, requests or off.",
        )
    mode = BatchingMode(form.cleaned_data["batching"]) if form.cleaned_data["batching"] else None
    done = one_click(
        request, lambda: state_batching(project=owner, model=model, number=version, mode=mode)
    )
    if done:
        messages.success(request, "Saved. Endpoints apply it with the next promotion.")
    return redirect("project_model_version", owner.slug, model, version)


@guarded_by(_MOVE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_model_promote(
    request: HttpRequest, project: str, model: str, version: int
) -> HttpResponse:
    """Show the changes of a promotion, with its gates. Promote, or request approval."""
    project_row, by = gated_project(request), Actor.of(require_principal(request))
    target = _target(request)
    form = Promotion(sent(request), initial={"archive_replaced": target.kind is TargetKind.STAGE})
    service = _button_action(request, project_row, model, version, target, by)
    done = submit_form(request, form, service)
    if done:
        messages.success(request, done.result)
        return redirect("project_model_version", project_row.slug, model, version)
    plan = plan_promotion(project=project_row, model=model, number=version, target=target)
    context = {
        "plan": plan,
        "number_text": str(version),
        "form": form,
        "asks_approval": _needs_approval_request(plan),
        "closed": [gate for gate in plan.gates if not gate.passed],
        "archivable": _archivable(plan),
        "last_stage": plan.rules.stages[-1],
        "may_override": gated_role(request).at_least(Role.MAINTAINER),
        "may_decide": _may_decide(request, plan, by),
    }
    status = 422 if form.is_bound else 200
    return render(request, "web/models/promote.html", context | WHERE, status=status)


def _archivable(plan: PromotionPlan) -> list[int]:
    """Return the versions that the page offers to archive with the promotion."""
    if plan.target.kind is TargetKind.STAGE:
        return plan.archives
    return [plan.replaces] if plan.replaces else []


def _may_decide(request: HttpRequest, plan: PromotionPlan, by: Actor) -> bool:
    if plan.request is None or not gated_role(request).at_least(Role.MAINTAINER):
        return False
    return not is_own_work(plan.request, plan.record.author_id, by.user)


def _target(request: HttpRequest) -> Target:
    alias = search_parameter(request, "alias")
    if alias:
        if not _ALIAS.match(alias):
            raise InvalidInput(
                "Use only letters, digits, _ and - in an alias.",
                field="alias",
                next_step="For example champion.",
            )
        return Target(TargetKind.ALIAS, alias)
    return Target(TargetKind.STAGE, search_parameter(request, "stage"))


def _needs_approval_request(plan: PromotionPlan) -> bool:
    return plan.request is None and any(
        gate.kind.value == "approval" and not gate.passed for gate in plan.gates
    )


def _button_action(
    request: HttpRequest, project: Project, model: str, version: int, target: Target, by: Actor
) -> Callable[[dict[str, Any]], str]:
    """Return the action of the button that was pressed. It returns a message about its result."""

    def ask(data: dict[str, Any]) -> str:
        request_approval(
            project=project, model=model, number=version, target=target, by=by, note=data["note"]
        )
        return "Approval requested. A maintainer who is not the author decides."

    def move(data: dict[str, Any]) -> str:
        overriding = request.POST.get("do") == "override"
        promote(
            project=project,
            model=model,
            number=version,
            target=target,
            by=by,
            sequence=data["sequence"],
            override_reason=data["override_reason"] or None if overriding else None,
            archive_replaced=data["archive_replaced"],
        )
        return f"Version {version} is now at the {target}."

    return ask if request.POST.get("do") == "ask" else move


@guarded_by(ProjectRole(Role.CONTRIBUTOR, Scope.MODELS_PROMOTE))
@require_POST
def project_model_decide(
    request: HttpRequest, project: str, model: str, request_id: str
) -> HttpResponse:
    """Approve or reject a request, or withdraw one's own."""
    project_row, by = gated_project(request), Actor.of(require_principal(request))
    message = request.POST.get("verdict", "")
    verdict = Verdict(message) if message in list(Verdict) else Verdict.WITHDRAW
    done = one_click(
        request,
        lambda: decide(
            project=project_row, model=model, request_id=request_id, verdict=verdict, by=by
        ),
    )
    if done is None:
        return redirect("project_model", project_row.slug, model)
    decided = done.result
    messages.success(request, f"Request {decided.state}.")
    address = reverse(
        "project_model_promote", args=[project_row.slug, model, decided.record.number]
    )
    return redirect(f"{address}?{urlencode({decided.kind: decided.target})}")
