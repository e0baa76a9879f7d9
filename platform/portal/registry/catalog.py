"""Registered models and versions of a project, read from MLflow's tables.

Every query filters by project, because names repeat between projects. Prompts, which MLflow stores
in the same tables, are left out.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import Count, Exists, Max, OuterRef, QuerySet

from portal.core.errors import InvalidInput, NotFound
from portal.core.pagination import MAX_LIMIT, decode_cursor, encode_cursor
from portal.experiments.models import (
    ModelVersion,
    ModelVersionTag,
    RegisteredModel,
    RegisteredModelAlias,
    RegisteredModelTag,
)

DELETED = "Deleted_Internal"
READY = "READY"
PROMPT_TAG = "mlflow.prompt.is_prompt"
_RUNS_AT_ONCE = 1000


@dataclass(frozen=True)
class ModelFacts:
    """A registered model. Times are milliseconds since 1970."""

    project_id: str
    name: str
    description: str
    created_ms: int
    updated_ms: int
    tags: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)
    versions: int = 0
    latest: int | None = None


@dataclass(frozen=True)
class VersionFacts:
    """A version as MLflow has it. `location` is the location of its files."""

    project_id: str
    model: str
    number: int
    description: str
    source: str
    location: str
    run_id: str
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelPage:
    """One page of models, and the cursor of the next one."""

    items: Sequence[ModelFacts]
    next_cursor: str | None


@dataclass(frozen=True)
class ListedVersions:
    """One page of versions, newest first, and the cursor of the next one."""

    items: Sequence[VersionFacts]
    next_cursor: str | None


def _models(project_id: str) -> QuerySet[RegisteredModel]:
    prompts = RegisteredModelTag.objects.filter(
        workspace=project_id, name=OuterRef("name"), key=PROMPT_TAG
    )
    return RegisteredModel.objects.filter(~Exists(prompts), workspace=project_id)


def _versions(project_id: str) -> QuerySet[ModelVersion]:
    return ModelVersion.objects.filter(workspace=project_id).exclude(current_stage=DELETED)


def find_model(project_id: str, name: str) -> ModelFacts:
    """Return one model of a project. Raises NotFound."""
    row = _models(project_id).filter(name=name).first()
    if row is None:
        raise NotFound
    return _with_facts(project_id, [row])[0]


def models_named(project_id: str, names: Iterable[str]) -> list[ModelFacts]:
    """Return those of the named models that exist."""
    rows = list(_models(project_id).filter(name__in=list(names)))
    return _with_facts(project_id, rows)


def newest_models(project_id: str, *, limit: int) -> list[ModelFacts]:
    """Return the models of a project that were changed last."""
    rows = _models(project_id).order_by("-last_updated_time", "name")[:limit]
    return _with_facts(project_id, list(rows))


def models_created_at(project_id: str, created_ms: int) -> list[str]:
    """Return the names of the models of a project that were created at that millisecond."""
    models = RegisteredModel.objects.filter(workspace=project_id, creation_time=created_ms)
    return list(models.values_list("name", flat=True))


def newest_models_matching(
    project_ids: Iterable[str], text: str, *, limit: int
) -> list[tuple[str, str]]:
    """Return project id and name of the newest models whose name contains `text`."""
    prompts = RegisteredModelTag.objects.filter(
        workspace=OuterRef("workspace"), name=OuterRef("name"), key=PROMPT_TAG
    )
    models = RegisteredModel.objects.filter(
        ~Exists(prompts), workspace__in=list(project_ids), name__icontains=text
    )
    newest = models.order_by("-creation_time", "name")[:limit]
    return list(newest.values_list("workspace", "name"))


def newest_versions_matching(
    project_ids: Iterable[str], text: str, number: int, *, limit: int
) -> list[tuple[str, str]]:
    """Return project id and model of the versions `number` of models whose name contains `text`."""
    versions = ModelVersion.objects.filter(
        workspace__in=list(project_ids), name__icontains=text, version=number
    )
    newest = versions.exclude(current_stage=DELETED).order_by("-creation_time", "name")[:limit]
    return list(newest.values_list("workspace", "name"))


def list_models(
    project_id: str, *, text: str = "", cursor: str | None = None, limit: int = 50
) -> ModelPage:
    """Return a page of models by name, filtered by names that contain `text`."""
    limit = max(1, min(limit, MAX_LIMIT))
    rows = _models(project_id)
    if text:
        rows = rows.filter(name__icontains=text)
    if cursor:
        rows = rows.filter(name__gt=_text_in(cursor))
    models = list(rows.order_by("name")[: limit + 1])
    items = _with_facts(project_id, models[:limit])
    more = len(models) > limit
    return ModelPage(items, encode_cursor(json.dumps(items[-1].name)) if more else None)


def _text_in(cursor: str) -> str:
    key = decode_cursor(cursor)
    try:
        text = json.loads(key)
        if isinstance(text, str) and "\0" not in text:
            text.encode()
            return text
    except ValueError:
        pass
    raise _foreign_cursor()


def _foreign_cursor() -> InvalidInput:
    return InvalidInput(
        "This cursor is not valid.",
        code="invalid_cursor",
        field="cursor",
        next_step="Leave the cursor out to start from the first page.",
    )


def _with_facts(project_id: str, rows: Sequence[RegisteredModel]) -> list[ModelFacts]:
    names = [row.name for row in rows]
    values = {"workspace": project_id, "name__in": names}
    tags: dict[str, dict[str, str]] = defaultdict(dict)
    for tag in RegisteredModelTag.objects.filter(**values):
        tags[tag.name][tag.key] = tag.value or ""
    aliases: dict[str, dict[str, int]] = defaultdict(dict)
    for alias in RegisteredModelAlias.objects.filter(**values).order_by("alias"):
        aliases[alias.name][alias.alias] = alias.version
    counted = _versions(project_id).filter(name__in=names).values("name")
    counts = {
        row["name"]: (row["count"], row["latest"])
        for row in counted.annotate(count=Count("version"), latest=Max("version")).order_by()
    }
    return [
        ModelFacts(
            project_id=project_id,
            name=row.name,
            description=row.description or "",
            created_ms=row.creation_time or 0,
            updated_ms=row.last_updated_time or row.creation_time or 0,
            tags=tags[row.name],
            aliases=aliases[row.name],
            versions=counts.get(row.name, (0, None))[0],
            latest=counts.get(row.name, (0, None))[1],
        )
        for row in rows
    ]


def find_version(project_id: str, name: str, number: int) -> VersionFacts:
    """Return one version of a model. Raises NotFound."""
    row = _versions(project_id).filter(name=name, version=number).first()
    if row is None:
        raise NotFound
    return _version_facts(project_id, [row])[0]


def list_versions(
    project_id: str, name: str, *, cursor: str | None = None, limit: int = 50
) -> ListedVersions:
    """Return a page of the versions of a model, newest first."""
    limit = max(1, min(limit, MAX_LIMIT))
    rows = _versions(project_id).filter(name=name)
    if cursor:
        key = decode_cursor(cursor)
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise _foreign_cursor()
        rows = rows.filter(version__lt=int(key))
    versions = list(rows.order_by("-version")[: limit + 1])
    items = _version_facts(project_id, versions[:limit])
    more = len(versions) > limit
    return ListedVersions(items, encode_cursor(str(items[-1].number)) if more else None)


def versions_of_runs(project_id: str, run_ids: Iterable[str]) -> tuple[list[VersionFacts], int]:
    """Return the newest versions created from runs, newest first, and how many more there are."""
    ids = [run_id for run_id in run_ids if run_id]
    rows = _versions(project_id).filter(run_id__in=ids).order_by("-creation_time", "-version")
    newest = list(rows[:MAX_LIMIT])
    left_out = rows.count() - len(newest) if len(newest) == MAX_LIMIT else 0
    return _version_facts(project_id, newest), left_out


def versions_from_runs(project_id: str, run_ids: Iterable[str]) -> list[tuple[str, int, str]]:
    """Return name, number and run of all versions created from runs, newest first."""
    ids = sorted({run_id for run_id in run_ids if run_id})
    versions: list[tuple[str, int, str]] = []
    for start in range(0, len(ids), _RUNS_AT_ONCE):
        rows = _versions(project_id).filter(run_id__in=ids[start : start + _RUNS_AT_ONCE])
        newest = rows.order_by("-creation_time", "-version")
        named = newest.values_list("name", "version", "run_id")
        versions += [(name, number, run_id or "") for name, number, run_id in named]
    return versions


def names_of_versions(
    born: Iterable[tuple[str, int, int]],
) -> dict[tuple[str, int, int], tuple[str, ...]]:
    """Return the current names of models with a version, by (project id, created_ms, number).

    Versions that do not exist any more are left out. Several models created in the same
    millisecond are all named.
    """
    keys = set(born)
    projects = {project_id for project_id, _, _ in keys}
    created = {created_ms for _, created_ms, _ in keys}
    models = RegisteredModel.objects.filter(workspace__in=projects, creation_time__in=created)
    born_ms = {
        (project_id, name): created_ms
        for project_id, name, created_ms in models.values_list("workspace", "name", "creation_time")
    }
    versions = ModelVersion.objects.filter(
        workspace__in=projects,
        name__in={name for _, name in born_ms},
        version__in={number for _, _, number in keys},
    ).exclude(current_stage=DELETED)
    names: dict[tuple[str, int, int], tuple[str, ...]] = {}
    for project_id, name, number in versions.values_list("workspace", "name", "version"):
        key = (project_id, born_ms.get((project_id, name)) or 0, number)
        if key in keys:
            names[key] = (*names.get(key, ()), name)
    return names


def _version_facts(project_id: str, rows: Sequence[ModelVersion]) -> list[VersionFacts]:
    names = {row.name for row in rows}
    numbers = {row.version for row in rows}
    values = {"workspace": project_id, "name__in": names, "version__in": numbers}
    tags: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for tag in ModelVersionTag.objects.filter(**values):
        tags[tag.name, tag.version][tag.key] = tag.value or ""
    aliases: dict[tuple[str, int], list[str]] = defaultdict(list)
    for alias in RegisteredModelAlias.objects.filter(**values).order_by("alias"):
        aliases[alias.name, alias.version].append(alias.alias)
    return [
        VersionFacts(
            project_id=project_id,
            model=row.name,
            number=row.version,
            description=row.description or "",
            source=row.source or "",
            location=row.storage_location or row.source or "",
            run_id=row.run_id or "",
            created_ms=row.creation_time or 0,
            tags=tags[row.name, row.version],
            aliases=tuple(aliases[row.name, row.version]),
        )
        for row in rows
    ]
