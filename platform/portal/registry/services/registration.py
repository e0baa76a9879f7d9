"""Creates registered models and versions in MLflow's tables, the way MLflow does."""

from collections.abc import Mapping

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.experiments.models import (
    ModelVersion,
    ModelVersionTag,
    RegisteredModel,
    RegisteredModelTag,
    Run,
)
from portal.experiments.models.tables import DATABASE
from portal.registry.artifact_uri import require_files, resolve_source
from portal.registry.catalog import READY, ModelFacts, VersionFacts, find_model, find_version
from portal.registry.models import ModelLine, VersionRecord
from portal.registry.records import ensure_line, ensure_record
from portal.registry.services.actors import Actor
from slipway.schemas.registry import ModelChange, ModelIn, VersionIn
from slipway.schemas.signatures import SignatureOut

_TRIES = 5
_MAX_LOCATION = 500


def _now_ms() -> int:
    return int(clock.now().timestamp() * 1000)


def register_model(*, project: Project, spec: ModelIn, by: Actor) -> ModelFacts:
    """Create a registered model. Raises Conflict if a model or a prompt has the name."""
    if not _insert_model(project, spec.name, spec.description, spec.tags):
        raise Conflict(
            f"A registered model or prompt named {spec.name} already exists.",
            code="name_taken",
            next_step="Choose another name, or add a version to it.",
        )
    details = find_model(project.pk, spec.name)
    with transaction.atomic():
        line = ensure_line(project, details)
        audit.record("model.create", kind="model", target=line, label=details.name, project=project)
    return details


def _insert_model(project: Project, name: str, note: str, tags: Mapping[str, str]) -> bool:
    """Insert a model. Returns False if the name is taken."""
    now = _now_ms()
    try:
        with transaction.atomic(using=DATABASE):
            RegisteredModel(
                workspace=project.pk,
                name=name,
                creation_time=now,
                last_updated_time=now,
                description=note or None,
            ).save(force_insert=True)
            RegisteredModelTag.objects.bulk_create(
                RegisteredModelTag(workspace=project.pk, name=name, key=key, value=value)
                for key, value in tags.items()
            )
    except IntegrityError:
        return False
    return True


def register_version(*, project: Project, model: str, spec: VersionIn, by: Actor) -> VersionFacts:
    """Create the next version of a model, and the model if it does not exist.

    Numbers only grow, even if others register at the same time, MLflow clients included. Raises
    InvalidInput for a source or a run that is not this project's, or a source without files.
    """
    location, run_of_source = resolve_source(project.pk, spec.source)
    run_id = spec.run_id or run_of_source
    if run_id and not Run.objects.in_projects([project.pk]).filter(run_uuid=run_id).exists():
        raise InvalidInput(
            f"This project has no run {run_id}.",
            code="no_such_run",
            field="run_id",
            next_step="Leave it out: a source of the form runs:/… contains its run.",
        )
    if len(location) > _MAX_LOCATION:
        raise InvalidInput(
            "The location of these files is longer than MLflow can store.",
            code="bad_source",
            field="source",
            next_step="Log the model under a shorter name.",
        )
    require_files(project.pk, spec.source, location)
    if not _insert_model(project, model, "", {}):
        _refuse_prompt(project, model)
    number = _insert_version(project, model, spec, location, run_id)
    version = find_version(project.pk, model, number)
    with transaction.atomic():
        record = ensure_record(project, find_model(project.pk, model), version, author=by.user)
        _store_declared(record, spec)
        audit.record(
            "model.register",
            kind="model_version",
            target=record,
            label=f"{model} version {number}",
            project=project,
            after={"source": spec.source, "run": run_id or None},
        )
    return version


def _store_declared(record: VersionRecord, requested: VersionIn) -> None:
    """Store the stated format, signature and batching. The files are then read again."""
    if requested.batching is not None:
        VersionRecord.objects.filter(pk=record.pk).update(given_batching=requested.batching.value)
    if requested.format is None and requested.signature is None:
        return
    signature = None
    if requested.signature is not None:
        given = SignatureOut.model_validate(requested.signature.model_dump(mode="json"))
        signature = given.model_dump(mode="json")
    VersionRecord.objects.filter(pk=record.pk).update(
        given_format=requested.format or "", given_signature=signature, read_at=None
    )


def _refuse_prompt(project: Project, name: str) -> None:
    try:
        find_model(project.pk, name)
    except NotFound as error:
        raise Conflict(
            f"{name} is the name of a prompt.",
            code="name_taken",
            next_step="Choose another name for the model.",
        ) from error


def _insert_version(
    project: Project, model: str, requested: VersionIn, location: str, run_id: str
) -> int:
    """Insert a version under the next number. The loser of a race takes the number after it."""
    for _ in range(_TRIES):
        now = _now_ms()
        try:
            with transaction.atomic(using=DATABASE):
                values = {"workspace": project.pk, "name": model}
                touched = RegisteredModel.objects.filter(**values).update(last_updated_time=now)
                if not touched:
                    raise NotFound
                newest = ModelVersion.objects.filter(**values).order_by("-version").first()
                number = (newest.version if newest else 0) + 1
                ModelVersion(
                    **values,
                    version=number,
                    creation_time=now,
                    last_updated_time=now,
                    description=requested.description or None,
                    current_stage="None",
                    source=requested.source,
                    storage_location=location,
                    run_id=run_id or None,
                    status=READY,
                ).save(force_insert=True)
                ModelVersionTag.objects.bulk_create(
                    ModelVersionTag(**values, version=number, key=key, value=value)
                    for key, value in requested.tags.items()
                )
                return number
        except IntegrityError:
            continue
    raise Conflict(
        f"Too many versions of {model} are being registered at once.",
        code="register_again",
        next_step="Send the request again.",
    )


def change_model(*, project: Project, model: str, change: ModelChange) -> ModelFacts:
    """Change the card, the description and tags of a model."""
    details = find_model(project.pk, model)
    values = {"workspace": project.pk, "name": model}
    with transaction.atomic():
        line = ensure_line(project, details)
        if change.card is not None:
            ModelLine.objects.filter(pk=line.pk).update(card=change.card)
        audit.record(
            "model.update",
            kind="model",
            target=line,
            label=model,
            project=project,
            after=change.model_dump(exclude_none=True, exclude={"card"}),
        )
        with transaction.atomic(using=DATABASE):
            fresh: dict[str, object] = {"last_updated_time": _now_ms()}
            if change.description is not None:
                fresh["description"] = change.description or None
            RegisteredModel.objects.filter(**values).update(**fresh)
            for key, value in (change.tags or {}).items():
                tag = RegisteredModelTag.objects.filter(**values, key=key)
                if value is None:
                    tag.delete()
                elif not tag.update(value=value):
                    RegisteredModelTag(**values, key=key, value=value).save(force_insert=True)
    return find_model(project.pk, model)
