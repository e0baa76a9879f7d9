"""Services for the README of a project."""

from django.db import IntegrityError, transaction
from django.db.models import F

from portal.accounts import audit
from portal.accounts.models import Project, ProjectReadme, User
from portal.accounts.signals import send_accounts_changed
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import forbidden_in_text
from slipway.schemas.accounts import MOST_README_CHARACTERS


def readme_of(project: Project) -> ProjectReadme | None:
    """Return the README of a project with the person who saved it, or None."""
    return ProjectReadme.objects.filter(project=project).select_related("saved_by").first()


def save_readme(*, project: Project, by: User, text: str, version: int) -> ProjectReadme:
    """Save the README that was edited from `version` (0 if there was none).

    Raises Conflict when somebody has saved another version meanwhile, InvalidInput for a text that
    is too long or has a character that cannot be stored.
    """
    text = text.replace("\r\n", "\n").strip()
    if len(text) > MOST_README_CHARACTERS:
        raise InvalidInput(
            f"The README has {len(text):,} characters; at most {MOST_README_CHARACTERS:,} are "
            "allowed.",
            field="text",
            next_step="Shorten it, or move parts into reports.",
        )
    forbidden_in_text(text, field="text")
    with transaction.atomic():
        if not _store(project, by, text, version):
            raise _changed(project, version)
        readme = ProjectReadme.objects.select_related("saved_by").get(project=project)
        audit.record(
            "project.readme",
            kind="project",
            target=project,
            label=project.slug,
            project=project,
            before={"version": version},
            after={"version": version + 1, "characters": len(text)},
        )
        send_accounts_changed(project.pk, "project")
    return readme


def _store(project: Project, by: User, text: str, version: int) -> bool:
    if version == 0:
        try:
            with transaction.atomic():
                ProjectReadme.objects.create(project=project, text=text, saved_by=by)
        except IntegrityError:
            return False
        return True
    updated = ProjectReadme.objects.filter(project=project, version=version).update(
        text=text, version=F("version") + 1, saved_at=clock.now(), saved_by=by
    )
    return bool(updated)


def _changed(project: Project, version: int) -> Conflict:
    current = readme_of(project)
    if current is None:
        return Conflict(
            f"The project has no README, so there is no version {version} of it.",
            code="readme_changed",
            field="version",
            next_step="Save with version 0 to create it.",
        )
    return Conflict(
        f"{current.saved_by.display_name} saved version {current.version} at "
        f"{current.saved_at:%Y-%m-%d %H:%M} UTC, after you had opened version {version}.",
        code="readme_changed",
        field="version",
        next_step=f"Read version {current.version}, merge your text, and save with its number.",
    )
