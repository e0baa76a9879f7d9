"""Services for the README of a project."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, ProjectReadme, User
from portal.accounts.services.texts import clean_markdown, current_text, store_text
from portal.accounts.signals import send_accounts_changed
from slipway.schemas.accounts import MOST_README_CHARACTERS


def readme_of(project: Project) -> ProjectReadme | None:
    """Return the README of a project with the person who saved it, or None."""
    return current_text(ProjectReadme.objects, {"project": project})


def save_readme(*, project: Project, by: User, text: str, version: int) -> ProjectReadme:
    """Save the README that was edited from `version` (0 if there was none).

    Raises Conflict when somebody has saved another version meanwhile, InvalidInput for a text that
    is too long or has a character that cannot be stored.
    """
    text = clean_markdown(text, noun="The README", most=MOST_README_CHARACTERS)
    key = {"project": project}
    with transaction.atomic():
        readme = store_text(
            ProjectReadme.objects, key, by=by, text=text, version=version, code="readme_changed"
        )
        audit.record(
            "project.readme",
            kind="project",
            target=project,
            label=project.slug,
            project=project,
            before={"version": version},
            after={"version": readme.version, "characters": len(text)},
        )
        send_accounts_changed(project.pk, "project")
    return readme
