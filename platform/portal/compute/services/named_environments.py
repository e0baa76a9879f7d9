"""Create, version, archive and resolve the named environments of a project."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.lifecycle import BuildState
from portal.compute.models import (
    Environment,
    EnvironmentBuild,
    EnvironmentVersion,
    NamedEnvironment,
)
from portal.compute.services.version_packages import VersionPackages
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.core.text import clean_slug, forbidden_in_text
from slipway.schemas.environments import INSTALLATION

MOST_ENVIRONMENTS = 200
MAX_DESCRIPTION = 2000


class BuildSummary(StrEnum):
    """State of the builds of an environment for a project, over all nodes."""

    READY = "ready"
    BUILDING = "building"
    FAILED = "failed"
    NOT_BUILT = "not_built"


# Columns of an environment that lists of versions do not load.
LONG_TEXTS = ("environment__requirements", "environment__locked", "environment__conda")
_ORDER = (BuildState.READY, BuildState.BUILDING, BuildState.FAILED)


def create_named_environment(
    *,
    project: Project,
    by: User,
    name: str,
    description: str = "",
    packages: VersionPackages,
) -> NamedEnvironment:
    """Create a named environment with its first version.

    Raises InvalidInput, naming the field, and Conflict for a name that is taken.
    """
    slug = _free_slug(name)
    description = _clean_description(description)
    with transaction.atomic():
        _require_free(project, slug)
        try:
            with transaction.atomic():
                named = NamedEnvironment.objects.create(
                    project=project, name=slug, description=description, created_by=by
                )
        except IntegrityError:
            _require_free(project, slug)  # the same name was created concurrently
            raise
        version = _insert_version(named, by, packages)
        _audit("create", named, after={"version": 1, "packages": version.packages})
    return named


def add_version(
    *, named: NamedEnvironment, by: User, packages: VersionPackages
) -> EnvironmentVersion:
    """Add a version with other packages or another Python. Versions that exist stay as they are.

    Raises Conflict for the packages of the latest version, an archived environment, or a version
    that somebody adds at the same time.
    """
    latest = version_of(named, named.version)
    if latest.environment.digest == packages.digest:
        raise Conflict(
            f"Version {latest.number} of {named.name} has these packages already.",
            code="same_packages",
            field="requirements",
            next_step=f"Use {latest.reference}, or change the packages.",
        )
    with transaction.atomic():
        moved = NamedEnvironment.objects.active().filter(pk=named.pk, version=named.version)
        if not moved.update(version=named.version + 1):
            raise _moved_on(named)
        named.refresh_from_db(fields=["version"])
        version = _insert_version(named, by, packages)
        _audit(
            "version",
            named,
            before={"version": latest.number, "packages": latest.packages},
            after={"version": version.number, "packages": version.packages},
        )
    return version


def describe_named_environment(*, named: NamedEnvironment, description: str) -> None:
    """Change the description. Raises InvalidInput."""
    description = _clean_description(description)
    if description == named.description:
        return
    with transaction.atomic():
        if not NamedEnvironment.objects.filter(pk=named.pk).update(description=description):
            raise NotFound
        _audit("change", named, after={"description": description})
    named.description = description


def archive_named_environment(*, named: NamedEnvironment) -> None:
    """Archive an environment: nothing new runs in it. What uses it stays. Idempotent.

    Raises Conflict for the default of its project.
    """
    with transaction.atomic():
        active = NamedEnvironment.objects.active().filter(pk=named.pk, is_default=False)
        if active.update(archived_at=clock.now()):
            _audit("archive", named)
        named.refresh_from_db()
    if named.archived_at is None:
        raise Conflict(
            f"{named.name} is the default environment of this project.",
            code="environment_is_default",
            next_step="Choose another default environment, or none, and archive it then.",
        )


def restore_named_environment(*, named: NamedEnvironment) -> None:
    """Restore an archived environment. Idempotent."""
    with transaction.atomic():
        archived = NamedEnvironment.objects.filter(pk=named.pk, archived_at__isnull=False)
        if archived.update(archived_at=None):
            _audit("restore", named)
        named.refresh_from_db()


def set_default_environment(*, project: Project, name: str | None) -> NamedEnvironment | None:
    """Set the default environment of a project, None for that of the installation.

    Raises InvalidInput for an environment that does not exist or is archived.
    """
    chosen = None if name is None else _active_of(project, name)
    before = default_of(project)
    if (chosen and chosen.pk) == (before and before.pk):
        return before
    with transaction.atomic():
        defaults = NamedEnvironment.objects.filter(project=project, is_default=True)
        defaults.update(is_default=False)
        if chosen is not None:
            try:
                with transaction.atomic():
                    active = NamedEnvironment.objects.active().filter(pk=chosen.pk)
                    moved = active.update(is_default=True)
            except IntegrityError:
                moved = 0
            if not moved:
                raise Conflict(
                    "Somebody changes the default environment of this project at the same time.",
                    next_step="Look at the list of environments, and try again.",
                )
            chosen.is_default = True
        subject = chosen or before
        assert subject is not None  # noqa: S101  (the two differ)
        _audit(
            "default",
            subject,
            before={"default": before and before.name},
            after={"default": chosen and chosen.name},
        )
    return chosen


def default_of(project: Project) -> NamedEnvironment | None:
    """Return the default environment of a project, None for that of the installation."""
    return NamedEnvironment.objects.of_project(project).filter(is_default=True).first()


def default_version_of(project: Project) -> EnvironmentVersion | None:
    """Return the latest version of the default environment of a project."""
    versions = EnvironmentVersion.objects.filter(named__project=project, named__is_default=True)
    return versions.current().select_related("named", "environment").first()


def resolve_environment(*, project: Project, reference: str) -> EnvironmentVersion | None:
    """Return the version that `vision` (the latest) or `vision@3` names.

    None is the environment of the installation, which `installation` names. Raises InvalidInput
    for an environment or a version that does not exist, or is archived.
    """
    if reference == INSTALLATION:
        return None
    name, separator, number = reference.partition("@")
    named = _active_of(project, name)
    if not separator:
        return version_of(named, named.version)
    versions = named.versions.filter(number=int(number) if number.isdecimal() else 0)
    version = versions.select_related("named", "environment").first()
    if version is None:
        raise InvalidInput(
            f"The environment {name} has no version {number}; its latest is {named.version}.",
            code="no_such_environment_version",
            field="environment",
            next_step=f"Use {name}@{named.version}, or {name} for the latest.",
        )
    return version


def version_of(named: NamedEnvironment, number: int) -> EnvironmentVersion:
    """Return one version of an environment. Raises NotFound."""
    versions = EnvironmentVersion.objects.filter(named=named, number=number)
    version = versions.select_related("named", "environment", "created_by").first()
    if version is None:
        raise NotFound
    return version


def latest_versions(named: Iterable[NamedEnvironment]) -> dict[str, EnvironmentVersion]:
    """Return the latest version of each environment, by the id of the environment."""
    versions = EnvironmentVersion.objects.filter(named__in=list(named)).current()
    related = versions.select_related("named", "environment", "created_by")
    return {version.named_id: version for version in related.defer(*LONG_TEXTS)}


def build_summaries(project: Project, environments: Iterable[str]) -> dict[str, BuildSummary]:
    """Return the state of the project's builds of environments, by the id of `Environment`."""
    ids = list(environments)
    builds = EnvironmentBuild.objects.filter(project=project, environment__in=ids)
    states: dict[str, set[str]] = {}
    for environment_id, state in builds.values_list("environment_id", "state"):
        states.setdefault(environment_id, set()).add(state)
    return {id_: build_summary(states.get(id_, ())) for id_ in ids}


def build_summary(states: Iterable[str]) -> BuildSummary:
    """Return the state over all nodes of builds with these states."""
    present = set(states)
    first = next((state for state in _ORDER if state in present), None)
    return BuildSummary.NOT_BUILT if first is None else BuildSummary(first.value)


def _active_of(project: Project, name: str) -> NamedEnvironment:
    named = NamedEnvironment.objects.filter(project=project, name=name).first()
    if named is None:
        raise InvalidInput(
            f"This project has no environment named {name}.",
            code="no_such_environment",
            field="environment",
            next_step="Choose one that `slipway env list` shows, or create it with "
            f"`slipway env create {name} --requirements requirements.txt`.",
        )
    if named.archived_at is not None:
        raise InvalidInput(
            f"The environment {name} is archived.",
            code="environment_archived",
            field="environment",
            next_step=f"Restore it with `slipway env restore {name}`, or choose another one.",
        )
    return named


def _free_slug(name: str) -> str:
    """Return the name of a new environment. Raises InvalidInput."""
    slug = clean_slug(name, field="name")
    if slug == INSTALLATION:
        raise InvalidInput(
            f"The name {INSTALLATION} stands for the environment of the installation.",
            code="name_reserved",
            field="name",
            next_step="Choose another name.",
        )
    return slug


def _clean_description(description: str) -> str:
    forbidden_in_text(description, field="description")
    description = description.strip()
    if len(description) > MAX_DESCRIPTION:
        raise InvalidInput(
            f"The description has {len(description)} characters; at most {MAX_DESCRIPTION} are "
            "allowed.",
            field="description",
            next_step="Shorten it.",
        )
    return description


def _require_free(project: Project, name: str) -> None:
    environments = NamedEnvironment.objects.filter(project=project)
    taken = environments.filter(name=name).first()
    if taken is not None:
        archived = taken.archived_at is not None
        raise Conflict(
            f"This project has an environment named {name} already"
            f"{', which is archived' if archived else ''}.",
            code="name_taken",
            field="name",
            next_step="Restore that one and add a version to it, or choose another name."
            if archived
            else "Add a version to that one, or choose another name.",
        )
    if environments.count() >= MOST_ENVIRONMENTS:
        raise Conflict(
            f"A project has at most {MOST_ENVIRONMENTS} environments.",
            code="too_many_environments",
            next_step="Add a version to an environment that exists.",
        )


def _insert_version(
    named: NamedEnvironment, by: User, packages: VersionPackages
) -> EnvironmentVersion:
    environment: Environment = packages.use(named.project, by)
    return EnvironmentVersion.objects.create(
        named=named,
        number=named.version,
        environment=environment,
        packages=packages.count,
        is_conda=packages.conda is not None,
        created_by=by,
    )


def _moved_on(named: NamedEnvironment) -> Conflict:
    current = NamedEnvironment.objects.get(pk=named.pk)
    if current.archived_at is not None:
        return Conflict(
            f"The environment {named.name} is archived.",
            code="environment_archived",
            next_step="Restore it before you add a version.",
        )
    return Conflict(
        f"Somebody has just added version {current.version} of {named.name}.",
        code="environment_changed",
        field="requirements",
        next_step="Look at that version, and add yours again if it is still needed.",
    )


def _audit(
    verb: str,
    named: NamedEnvironment,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    audit.record(
        f"named_environment.{verb}",
        kind="named_environment",
        target=named,
        label=named.name,
        project=named.project,
        before=before,
        after=after,
    )
