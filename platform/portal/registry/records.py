"""Our rows beside MLflow's: created when first needed, and retained after a rename."""

from datetime import UTC, datetime

from django.db import transaction

from portal.accounts.models import Project, User
from portal.registry.catalog import ModelFacts, VersionFacts, models_created_at
from portal.registry.models import ModelLine, ProjectRules, VersionRecord


def datetime_from_ms(milliseconds: int) -> datetime:
    """Return a timestamp of MLflow as a datetime in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def line_of(details: ModelFacts) -> ModelLine | None:
    """Return our row of a model, even if MLflow has renamed the model since, or None."""
    born = ModelLine.objects.filter(project_id=details.project_id, born_ms=details.created_ms)
    known = {line.name: line for line in born}
    if not known or details.name in known:
        return known.get(details.name)
    there = set(models_created_at(details.project_id, details.created_ms))
    left = [line for name, line in known.items() if name not in there]
    # Two models created in the same millisecond and both renamed are ambiguous: they get new rows.
    return left[0] if len(left) == 1 else None


def ensure_line(project: Project, details: ModelFacts) -> ModelLine:
    """Return our row of a model, created or renamed if needed."""
    line = line_of(details)
    if line is None:
        line, _ = ModelLine.objects.get_or_create(
            project=project, name=details.name, born_ms=details.created_ms
        )
    elif line.name != details.name:
        ModelLine.objects.filter(pk=line.pk).update(name=details.name)
        line.name = details.name
    return line


def ensure_record(
    project: Project, model: ModelFacts, version: VersionFacts, *, author: User | None = None
) -> VersionRecord:
    """Return our row of a version, created if needed. A known author stays."""
    with transaction.atomic():
        line = ensure_line(project, model)
        record, fresh = VersionRecord.objects.select_related("line", "author").get_or_create(
            line=line, number=version.number, defaults={"author": author}
        )
    if not fresh and author is not None:
        VersionRecord.objects.filter(pk=record.pk, author=None).update(author=author)
        record.refresh_from_db(fields=["author"])
    return record


def records_of(details: ModelFacts) -> dict[int, VersionRecord]:
    """Return our rows of the versions of a model, by number."""
    line = line_of(details)
    if line is None:
        return {}
    rows = VersionRecord.objects.filter(line=line).select_related("line", "author")
    return {record.number: record for record in rows}


def rules_of(project: Project) -> ProjectRules:
    """Return the rules of a project, or unsaved defaults if it has none."""
    return ProjectRules.objects.filter(project=project).first() or ProjectRules(project=project)
