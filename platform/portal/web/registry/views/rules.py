"""The stages of a project and what is asked before a version reaches them."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.core.validation_messages import validation_predicate
from portal.datasets.models import Version
from portal.registry.models import ProjectRules
from portal.registry.records import rules_of
from portal.registry.services.actors import Actor
from portal.registry.services.rules import change_rules
from portal.web.base.form_submission import sent, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.registry.forms import Gates, ProjectStages, gates_form_initial
from portal.web.registry.views.models import WHERE
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.registry import RulesIn, TargetGates

_DATA_SHOWN = 50


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.MODELS_PROMOTE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_rules(request: HttpRequest, project: str) -> HttpResponse:
    """Name the stages, and declare the gates of one stage or alias at a time."""
    project_row, by = gated_project(request), Actor.of(require_principal(request))
    rules = rules_of(project_row)
    declared = [TargetGates.model_validate(written) for written in rules.gates]
    is_about_stages = request.POST.get("do") == "stages"
    stages = ProjectStages(
        sent(request) if is_about_stages else None, initial={"stages": ", ".join(rules.stages)}
    )
    gates = Gates(
        None if is_about_stages else sent(request), initial=_initial(request, declared, rules)
    )
    form = stages if is_about_stages else gates
    removed = _removed_gates(form, declared)
    is_question = bool(removed) and request.POST.get("remove") != removed
    if not is_question:
        done = submit_form(
            request,
            form,
            lambda _: change_rules(
                project=project_row, spec=_changed_rules(request, form, rules), by=by
            ),
        )
        if done:
            messages.success(request, "Rules saved.")
            return redirect("project_rules", project_row.slug)
    context = {
        "removed": removed if is_question else "",
        "rules": rules,
        "declared": [target for target in declared if target.gates],
        "stages": stages,
        "gates": gates,
        "data": _data(project_row),
    }
    status = 422 if form.is_bound else 200
    return render(request, "web/models/rules.html", context | WHERE, status=status)


def _initial(
    request: HttpRequest, declared: list[TargetGates], rules: ProjectRules
) -> dict[str, object]:
    kind, name = search_parameter(request, "kind"), search_parameter(request, "name")
    kind, name = kind or "stage", name or rules.stages[-2:][0]
    for target in declared:
        if (target.kind.value, target.name.lower()) == (kind, name.lower()):
            return gates_form_initial(target)
    return {"kind": kind, "name": name, "better": "higher"}


def _removed_gates(form: ProjectStages | Gates, declared: list[TargetGates]) -> str:
    """Name the active gates that the form would remove, in a sentence for the question."""
    if not isinstance(form, Gates) or not form.is_bound or not form.is_valid():
        return ""
    requested = form.payload
    assert requested is not None  # noqa: S101  (the form is valid)
    place = (requested.kind, requested.name.lower())
    active = [
        gate for item in declared if (item.kind, item.name.lower()) == place for gate in item.gates
    ]
    kept = {gate.kind for gate in requested.gates}
    gone = dict.fromkeys(str(gate.kind) for gate in active if gate.kind not in kept)
    return ", ".join(gone)


def _changed_rules(
    request: HttpRequest, form: ProjectStages | Gates, rules: ProjectRules
) -> RulesIn:
    """Return the rules as changed by the form. `revision` detects changes since it was opened."""
    opened = request.POST.get("revision", "")
    revision = int(opened) if opened.isascii() and opened.isdigit() else rules.revision
    declared = [TargetGates.model_validate(written) for written in rules.gates]
    if isinstance(form, ProjectStages):
        stages: list[str] = form.cleaned_data["stages"]
        kept = [item for item in declared if item.kind.value == "alias" or item.name in stages]
        return _rules("stages", stages, kept, revision)
    value = form.payload
    assert value is not None  # noqa: S101  (the form is valid)
    place = (value.kind, value.name.lower())
    before = [item for item in declared if (item.kind, item.name.lower()) == place]
    # The form has one measurement. Further ones, declared through the API, are retained.
    more = [gate for item in before for gate in item.gates if gate.kind == "evaluation"][1:]
    others = [item for item in declared if item not in before]
    target_gates = TargetGates(kind=value.kind, name=value.name, gates=[*value.gates, *more])
    requested = [*others, target_gates] if target_gates.gates else others
    return _rules("name", rules.stages, requested, revision)


def _rules(field: str, stages: list[str], gates: list[TargetGates], revision: int) -> RulesIn:
    try:
        return RulesIn(stages=stages, gates=gates, revision=revision)
    except ValidationError as error:
        raise InvalidInput(
            f"These rules are not valid: one {validation_predicate(error.errors()[0])}.",
            field=field,
            next_step="Use letters, digits, spaces, _ and - in stage names, and each name once.",
        ) from error


def _data(project: Project) -> list[str]:
    """Return the newest versions of datasets, to be suggested."""
    ready = Version.objects.ready().complete().filter(dataset__project=project)
    return [version.reference for version in ready.order_by("-ready_at")[:_DATA_SHOWN]]
