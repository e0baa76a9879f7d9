"""Models of a project: the list, one model, its card, registering a run's model."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.experiments.factories import tracker
from portal.registry.catalog import (
    VersionFacts,
    find_model,
    list_models,
    list_versions,
)
from portal.registry.logged_models import logged_models_of, suggested_name
from portal.registry.models import ModelLine, Move, VersionRecord
from portal.registry.records import datetime_from_ms, line_of, records_of, rules_of
from portal.registry.services.actors import Actor
from portal.registry.services.promotions import stage_of
from portal.registry.services.registration import change_model, register_version
from portal.registry.services.requests import open_requests
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import listing_of, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.registry.forms import ModelCard, RegisterModel
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.registry import ModelChange, TargetGates, VersionIn
from slipway.schemas.serving import BatchingMode

_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
WHERE = {"area": "projects", "section": "models"}
MOVES_SHOWN = 20
RUN_ID_CHARACTERS = 32


@guarded_by(_SEE)
@require_safe
def project_models(request: HttpRequest, project: str) -> HttpResponse:
    """List the registered models, with what is in each stage, and the gates of the project."""
    project_row = gated_project(request)
    cursor = request.GET.get("cursor") or None
    page = list_models(project_row.pk, text=search_parameter(request, "q"), cursor=cursor)
    rules = rules_of(project_row)
    lines = {item.name: line_of(item) for item in page.items}
    requests = open_requests([line.pk for line in lines.values() if line])
    context = {
        "listing": listing_of(request, page.items, next_cursor=page.next_cursor),
        "region": "models",
        "rows": [
            (
                item,
                _stage_versions(lines[item.name]),
                [it for it in requests if it.record.line == lines[item.name]],
                datetime_from_ms(item.updated_ms),
            )
            for item in page.items
        ],
        "stages": rules.stages,
        "gates": [TargetGates.model_validate(written) for written in rules.gates],
        "may_write": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_rule": gated_role(request).at_least(Role.MAINTAINER),
    }
    return render(request, "web/models/list.html", context | WHERE)


def _stage_versions(line: ModelLine | None) -> dict[str, int]:
    """Return the newest version in each stage."""
    placed = VersionRecord.objects.filter(line=line).exclude(stage="").order_by("number")
    return dict(placed.values_list("stage", "number")) if line else {}


@guarded_by(_SEE)
@require_safe
def project_model(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Show a model: its versions, aliases, card and history."""
    project_row = gated_project(request)
    details = find_model(project_row.pk, model)
    cursor = request.GET.get("cursor") or None
    page = list_versions(project_row.pk, model, cursor=cursor)
    line, rules, records = line_of(details), rules_of(project_row), records_of(details)
    moves = shortlist(
        Move.objects.filter(line=line).select_related("by").order_by("-sequence"), MOVES_SHOWN
    )
    context = {
        "model": details,
        "card": line.card if line else "",
        "rows": [
            (item, records.get(item.number), stage_of(records.get(item.number), rules), timestamp)
            for item, timestamp in ((v, datetime_from_ms(v.created_ms)) for v in page.items)
        ],
        "listing": listing_of(request, page.items, next_cursor=page.next_cursor),
        "moves": moves,
        "requests": open_requests([line.pk]) if line else [],
        "may_write": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/models/model.html", context | WHERE)


@guarded_by(_WRITE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_model_card(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Write the card of a model."""
    project_row = gated_project(request)
    line = line_of(find_model(project_row.pk, model))
    form = ModelCard(sent(request), initial={"card": line.card if line else ""})
    done = submit_form(
        request,
        form,
        lambda data: change_model(
            project=project_row, model=model, change=ModelChange(card=data["card"])
        ),
    )
    if done:
        messages.success(request, "Model card saved.")
        return redirect("project_model", project_row.slug, model)
    context = {"form": form, "model_name": model}
    return render(request, "web/models/card.html", context | WHERE, status=status_of(form))


@guarded_by(_WRITE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_model_register(request: HttpRequest, project: str) -> HttpResponse:
    """Register a model of a run. The URL may name the run, its model and the registered one."""
    project_row = gated_project(request)
    run_id = (sent(request) or request.GET).get("run", "")[:RUN_ID_CHARACTERS]
    logged = logged_models_of(project_row.pk, run_id) if run_id else []
    requested = request.GET.get("model", "")
    sources = [model.source for model in logged]
    given = {
        "run": run_id,
        "name": request.GET.get("name", "")[:100] or suggested_name(project_row.pk, run_id, logged),
        "source": requested if requested in sources else next(iter(sources), ""),
        "path": "" if logged else "model",
    }
    form = RegisterModel(sent(request), logged=logged, initial=given)
    by = Actor.of(require_principal(request))
    done = submit_form(request, form, lambda data: _register(project_row, by, data))
    if done:
        made = done.result
        messages.success(request, f"{made.model} now has version {made.number}.")
        return redirect("project_model_version", project_row.slug, made.model, made.number)
    run = tracker().run(project_row.pk, run_id) if run_id else None
    context = {"form": form, "run": run, "logged": logged}
    return render(request, "web/models/register.html", context | WHERE, status=status_of(form))


def _register(project: Project, by: Actor, data: dict[str, Any]) -> VersionFacts:
    requested = VersionIn(
        source=data.get("source") or f"runs:/{data['run']}/{data['path']}",
        run_id=data["run"],
        description=data["description"],
        batching=BatchingMode(data["batching"]) if data["batching"] else None,
    )
    return register_version(project=project, model=data["name"], spec=requested, by=by)
