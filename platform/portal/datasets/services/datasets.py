"""Making, describing, deleting and bringing back datasets and versions."""

import re

from django.db import IntegrityError, models, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.datasets.gates import version_of
from portal.datasets.models import UNDO_WITHIN, Dataset, DatasetUse, Version
from portal.workloads.lifecycle import ENDS
from slipway.schemas.datasets import NAME_PATTERN, REFERENCE_PATTERN, VersionState
from slipway.schemas.truncation import shorten

_NAME = re.compile(NAME_PATTERN.replace("$", r"\Z"))
# Paths of pages in the URL segment of a dataset's name.
_RESERVED = frozenset({"new"})
_REFERENCE = re.compile(REFERENCE_PATTERN.replace("$", r"\Z"))


def create_dataset(*, project: Project, by: User, name: str, description: str = "") -> Dataset:
    """Create an empty dataset. Raises InvalidInput for a bad name, Conflict for a taken one."""
    if not _NAME.match(name) or name in _RESERVED:
        raise InvalidInput(
            "A dataset name must have 1 to 63 lower-case letters, digits, dots, hyphens and "
            "underscores, and begin with a letter or digit.",
            field="name",
            next_step="For example: digits.",
        )
    try:
        with transaction.atomic():
            dataset = Dataset.objects.create(
                project=project, name=name, description=description, created_by=by
            )
            _record("dataset.create", dataset)
    except IntegrityError as error:
        raise Conflict(
            f"A dataset {name} already exists.",
            code="name_taken",
            field="name",
            next_step="Choose another name, or add a version to the existing one.",
        ) from error
    return dataset


def describe_dataset(*, dataset: Dataset, description: str) -> Dataset:
    """Change the description."""
    with transaction.atomic():
        before, dataset.description = dataset.description, description
        dataset.save(update_fields=["description"])
        _record("dataset.edit", dataset, before=before, after=description)
    return dataset


def delete_dataset(*, dataset: Dataset) -> None:
    """Hide a dataset and its versions. Their bytes are freed when it can no longer be undone.

    Raises Conflict while jobs that have not ended read it, NotFound when it is gone already.
    """
    with transaction.atomic():
        _refuse_in_use(DatasetUse.objects.filter(version__dataset=dataset), f"{dataset.name}")
        current = Dataset.objects.current().filter(pk=dataset.pk)
        if not current.update(deleted_at=clock.now()):
            raise NotFound
        _record("dataset.delete", dataset)


def restore_dataset(*, dataset: Dataset) -> Dataset:
    """Restore a deleted dataset. Raises Conflict when it is too late, or the name is taken."""
    if dataset.deleted_at is None:
        return dataset
    _require_undoable(dataset)
    with transaction.atomic():
        try:
            with transaction.atomic():
                Dataset.objects.filter(pk=dataset.pk).update(deleted_at=None)
        except IntegrityError as error:
            raise Conflict(
                f"A new dataset named {dataset.name} exists, so this one cannot be restored.",
                code="name_taken",
                next_step="Delete the new one first; you can restore it for three days as well.",
            ) from error
        _record("dataset.restore", dataset)
    dataset.deleted_at = None
    return dataset


def delete_version(*, version: Version) -> None:
    """Hide a version, to be undone within three days. A draft goes at once.

    Raises Conflict while jobs that have not ended read it, or while it is being checked.
    """
    with transaction.atomic():
        _refuse_in_use(version.uses.all(), version.reference)
        target = (
            VersionState.DELETED if version.state == VersionState.READY else VersionState.PURGED
        )
        if not Version.objects.move(version.pk, target, deleted_at=clock.now()):
            raise Conflict(
                "This version is being checked, or was just deleted.",
                next_step="Reload in a minute.",
            )
        if target == VersionState.PURGED:
            version.entries.all().delete()
        audit.record(
            "dataset.version_delete",
            kind="dataset_version",
            target=version,
            label=version.reference,
            project=version.dataset.project,
            before={"digest": version.digest, "size_bytes": version.size_bytes},
        )


def restore_version(*, version: Version) -> Version:
    """Restore a deleted version. Raises Conflict when it is too late."""
    if version.deleted_at is None:
        return version
    _require_undoable(version)
    with transaction.atomic():
        if not Version.objects.move(version.pk, VersionState.READY, deleted_at=None):
            raise NotFound
        audit.record(
            "dataset.version_restore",
            kind="dataset_version",
            target=version,
            label=version.reference,
            project=version.dataset.project,
        )
    return Version.objects.complete().get(pk=version.pk)


def resolve(*, project: Project, reference: str) -> Version:
    """Return the ready version a reference names: `digits`, `digits:latest` or `digits:3`.

    Raises InvalidInput naming the field `datasets` where there is none.
    """
    if _REFERENCE.match(reference):
        name, _, requested = reference.partition(":")
        dataset = Dataset.objects.of_project(project).current().filter(name=name).first()
        version = version_of(dataset, requested or "latest") if dataset else None
        if version is not None:
            return version
    raise InvalidInput(
        f"There is no dataset {reference[:80]} in this project, or no such version.",
        code="no_such_dataset",
        field="datasets",
        next_step=(
            "List the datasets with `slipway dataset list`. A version is written as digits:3."
        ),
    )


def _refuse_in_use(uses: models.QuerySet[DatasetUse], what: str) -> None:
    ends = [state.value for state in ENDS]
    running = uses.filter(workload__isnull=False).exclude(workload__state__in=ends)
    count = running.values("workload").distinct().count()
    if count:
        raise Conflict(
            f"{what} is read by {count} "
            f"{'job that has' if count == 1 else 'jobs that have'} not ended.",
            code="dataset_in_use",
            next_step="Wait for them or cancel them first.",
        )


def _require_undoable(row: Dataset | Version) -> None:
    if row.deleted_at is None or row.deleted_at < clock.now() - UNDO_WITHIN:
        raise Conflict(
            f"It was deleted more than {UNDO_WITHIN.days} days ago; its files are gone.",
            code="too_late",
            next_step="Upload the data again.",
        )


def _record(verb: str, dataset: Dataset, *, before: str = "", after: str = "") -> None:
    changed = {"description": shorten(before, 200)} if verb == "dataset.edit" else None
    audit.record(
        verb,
        kind="dataset",
        target=dataset,
        label=dataset.name,
        project=dataset.project,
        before=changed,
        after={"description": shorten(after, 200)} if changed else None,
    )
