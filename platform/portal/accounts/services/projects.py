"""Services for projects."""

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.models.tenancy import role_in
from portal.accounts.services.slugs import free_slug
from portal.accounts.signals import send_accounts_changed
from portal.core import clock
from portal.core.errors import Conflict, Forbidden
from portal.core.text import clean_name
from slipway.schemas.accounts import NetworkRule, Role


def create_project(
    *, by: User, name: str, slug: str | None = None, description: str = "", team: Team | None = None
) -> Project:
    """Create a project owned by `by`, on one's own or in a team one maintains.

    Raises InvalidInput for a bad name or slug, Conflict when a project the person can see has the
    slug already, Forbidden without the role maintainer in the team.
    """
    name = clean_name(name)
    if team is not None:
        held = role_in(by, team)
        if held is None or not held.at_least(Role.MAINTAINER):
            raise Forbidden(
                f"Only maintainers of the team {team.slug} can add projects to it.",
                code="role_too_low",
                field="team",
                next_step="Ask an owner of the team, or create the project without a team.",
            )
    slug = free_slug(Project.objects.all(), Project.objects.visible_to(by), name, slug)
    try:
        with transaction.atomic():
            project = Project.objects.create(
                name=name, slug=slug, description=description.strip(), team=team
            )
            Membership.objects.create(user=by, project=project, role=Role.OWNER)
            audit.record(
                "project.create",
                kind="project",
                target=project,
                label=project.slug,
                project=project,
                after=audited_attributes(project),
            )
            send_accounts_changed(by.pk, "projects")
    except IntegrityError as error:
        raise Conflict(
            f"The address {slug} was just taken.",
            code="slug_taken",
            field="slug",
            next_step="Choose another address.",
        ) from error
    return project


def change_project(
    *,
    project: Project,
    name: str | None = None,
    description: str | None = None,
    network: NetworkRule | None = None,
) -> Project:
    """Change the attributes given. The slug never changes, because URLs contain it.

    A new network rule applies to workloads started from now on.
    """
    with transaction.atomic():
        project = Project.objects.select_for_update(of=("self",), no_key=True).get(pk=project.pk)
        old = audited_attributes(project)
        if name is not None:
            project.name = clean_name(name)
        if description is not None:
            project.description = description.strip()
        if network is not None:
            project.network = network
        before, after = audit.difference(old, audited_attributes(project))
        if after:
            project.save(update_fields=["name", "description", "network"])
            audit.record(
                "project.change",
                kind="project",
                target=project,
                label=project.slug,
                project=project,
                before=before,
                after=after,
            )
            send_accounts_changed(project.pk, "project")
    return project


def archive_project(*, project: Project) -> None:
    """Hide the project from everyone but its owners. Nothing is deleted. Idempotent."""
    _set_archived(project, archived=True)


def restore_project(*, project: Project) -> None:
    """Restore an archived project. Idempotent."""
    _set_archived(project, archived=False)


def _set_archived(project: Project, *, archived: bool) -> None:
    timestamp = clock.now() if archived else None
    with transaction.atomic():
        moved = Project.objects.filter(pk=project.pk, archived_at__isnull=archived).update(
            archived_at=timestamp
        )
        if moved:
            project.archived_at = timestamp
            audit.record(
                "project.archive" if archived else "project.restore",
                kind="project",
                target=project,
                label=project.slug,
                project=project,
                before={"archived": not archived},
                after={"archived": archived},
            )
            send_accounts_changed(project.pk, "project")


def audited_attributes(project: Project) -> dict[str, str | None]:
    """Return the attributes of a project that the audit log records."""
    return {
        "name": project.name,
        "description": project.description,
        "team": project.team.slug if project.team else None,
        "network": project.network,
    }
