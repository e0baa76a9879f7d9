"""Aliases and stages set by MLflow clients go through the portal's gates.

MLflow itself never hears of these calls, so there is no way around the gates and one history.
"""

from collections.abc import Callable
from typing import Any

import orjson

from portal.accounts.models import Project
from portal.accounts.request_origin import Origin, origin_context
from portal.api.mlflow.answers import FullResponse, Refusal, answer, invalid
from portal.api.mlflow.auth import Caller
from portal.core.errors import Conflict, Forbidden, InvalidInput, NotFound, SlipwayError
from portal.experiments.models import ModelVersion, RegisteredModelTag
from portal.registry.catalog import PROMPT_TAG, find_model, find_version
from portal.registry.mlflow_sync import find_synced_model
from portal.registry.promotion_gates import Target, gates_of
from portal.registry.records import ensure_record, rules_of
from portal.registry.services.actors import Actor
from portal.registry.services.promotions import promote, remove_alias
from slipway.schemas.accounts import Scope
from slipway.schemas.registry import TargetKind

Content = dict[str, Any]
Guard = Callable[[Caller, Project, Content], FullResponse | None]
_V2 = "/api/2.0/mlflow"
CREATE = f"{_V2}/model-versions/create"
_NONE = "none"
_CODES: tuple[tuple[type[SlipwayError], int, str], ...] = (
    (NotFound, 404, "RESOURCE_DOES_NOT_EXIST"),
    (Forbidden, 403, "PERMISSION_DENIED"),
    (InvalidInput, 400, "INVALID_PARAMETER_VALUE"),
    (Conflict, 409, "INVALID_STATE"),
)


def guarded(visitor: Caller, method: str, path: str, content: Content) -> FullResponse | None:
    """Return the response to a call that moves a version, None for every other call.

    Raises Refusal in MLflow's format, with the portal's message and next step.
    """
    guard = _GUARDS.get((method, path))
    if guard is None:
        return None
    project = Project.objects.get(pk=visitor.project_id)
    try:
        with origin_context(_origin(visitor)):
            return guard(visitor, project, content)
    except SlipwayError as error:
        raise _refusal(error) from error


def _origin(visitor: Caller) -> Origin:
    return Origin(user=visitor.principal.user, token=visitor.principal.token)


def _refusal(error: SlipwayError) -> Refusal:
    message = " ".join(filter(None, (error.message, error.next_step)))
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return Refusal(status, code, message)
    return Refusal(error.status, "INTERNAL_ERROR", message)


def _text(content: Content, name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value or len(value) > 256 or "\0" in value:
        raise invalid(f"{name} must be text of 1 to 256 characters.")
    return value


def _number(content: Content) -> int:
    value = content.get("version")
    text = str(value) if type(value) is int else value
    if not (isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 10):
        raise invalid("version must be a whole number.")
    return int(text)


def _is_prompt(project: Project, name: str) -> bool:
    tags = RegisteredModelTag.objects.filter(workspace=project.pk, name=name, key=PROMPT_TAG)
    return tags.exists()


def _set_alias(visitor: Caller, project: Project, content: Content) -> FullResponse | None:
    name, alias = _text(content, "name"), _text(content, "alias")
    if _is_prompt(project, name):
        return None
    target = Target(TargetKind.ALIAS, alias)
    if find_synced_model(project, name).aliases.get(alias) == _number(content):
        return answer({})
    _move(visitor, project, name, _number(content), target)
    return answer({})


def _move(
    visitor: Caller,
    project: Project,
    name: str,
    number: int,
    target: Target,
    *,
    archive: bool = False,
) -> None:
    principal = visitor.principal
    if gates_of(rules_of(project), target) and not principal.allows(Scope.MODELS_PROMOTE):
        raise Refusal(
            403,
            "PERMISSION_DENIED",
            f"The {target} has gates, and this token does not carry the scope "
            f"{Scope.MODELS_PROMOTE.value}. Promote on the page of the model.",
        )
    promote(
        project=project,
        model=name,
        number=number,
        target=target,
        by=Actor.of(principal),
        archive_replaced=archive,
    )


def _delete_alias(visitor: Caller, project: Project, content: Content) -> FullResponse | None:
    name, alias = _text(content, "name"), _text(content, "alias")
    if _is_prompt(project, name):
        return None
    if alias not in find_synced_model(project, name).aliases:
        return answer({})
    remove_alias(project=project, model=name, alias=alias, by=Actor.of(visitor.principal))
    return answer({})


def _transition(visitor: Caller, project: Project, content: Content) -> FullResponse | None:
    name, number, message = _text(content, "name"), _number(content), _text(content, "stage")
    stages: list[str] = rules_of(project).stages
    named = {stage.lower(): stage for stage in stages}
    stage = stages[0] if message.lower() == _NONE else named.get(message.lower())
    if stage is None:
        raise invalid(f"This project has no stage {message}. Its stages are {', '.join(stages)}.")
    archive = content.get("archive_existing_versions") in (True, "true")
    try:
        _move(visitor, project, name, number, Target(TargetKind.STAGE, stage), archive=archive)
    except Conflict as conflict:
        if conflict.code != "already_there":
            raise
    return answer({"model_version": _described(project, name, number)})


def _described(project: Project, name: str, number: int) -> Content:
    row = ModelVersion.objects.get(workspace=project.pk, name=name, version=number)
    described = {
        "name": name,
        "version": str(number),
        "creation_timestamp": row.creation_time,
        "last_updated_timestamp": row.last_updated_time,
        "current_stage": row.current_stage,
        "description": row.description,
        "source": row.source,
        "run_id": row.run_id,
        "status": row.status,
    }
    return {key: value for key, value in described.items() if value is not None}


def _refuse_prompt_tag(_visitor: Caller, project: Project, content: Content) -> FullResponse | None:
    """Lock a model against becoming a prompt while its alias moves."""
    name = content.get("name")
    if content.get("key") == PROMPT_TAG and isinstance(name, str) and not _is_prompt(project, name):
        raise invalid(f"{PROMPT_TAG} can only be set when a prompt is created.")
    return None


_GUARDS: dict[tuple[str, str], Guard] = {
    ("POST", f"{_V2}/registered-models/alias"): _set_alias,
    ("DELETE", f"{_V2}/registered-models/alias"): _delete_alias,
    ("POST", f"{_V2}/model-versions/transition-stage"): _transition,
    ("POST", f"{_V2}/registered-models/set-tag"): _refuse_prompt_tag,
}


def note_author(visitor: Caller, body: bytes) -> None:
    """Store who registered a version, from MLflow's response."""
    try:
        made = orjson.loads(body)["model_version"]
        name, number = str(made["name"]), int(made["version"])
    except (ValueError, KeyError, TypeError):
        return
    project = Project.objects.get(pk=visitor.project_id)
    try:
        version = find_version(project.pk, name, number)
        model = find_model(project.pk, name)
    except NotFound:  # a prompt, or deleted since
        return
    ensure_record(project, model, version, author=visitor.principal.user)
