"""Services for teams."""

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Membership, Team, User
from portal.accounts.services.slugs import free_slug
from portal.accounts.signals import send_accounts_changed
from portal.core.errors import Conflict
from portal.core.text import clean_name
from slipway.schemas.accounts import Role


def create_team(*, by: User, name: str, slug: str | None = None) -> Team:
    """Create a team owned by `by`. Raises InvalidInput or Conflict as `create_project` does."""
    name = clean_name(name)
    slug = free_slug(Team.objects.all(), Team.objects.visible_to(by), name, slug)
    try:
        with transaction.atomic():
            team = Team.objects.create(name=name, slug=slug)
            Membership.objects.create(user=by, team=team, role=Role.OWNER)
            audit.record(
                "team.create",
                kind="team",
                target=team,
                label=team.slug,
                team=team,
                after={"name": name},
            )
            send_accounts_changed(by.pk, "teams")
    except IntegrityError as error:
        raise Conflict(
            f"The address {slug} was just taken.",
            code="slug_taken",
            field="slug",
            next_step="Choose another address.",
        ) from error
    return team


def rename_team(*, team: Team, name: str) -> Team:
    """Rename the team. Its slug stays the same."""
    name = clean_name(name)
    with transaction.atomic():
        team = Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        if team.name != name:
            old, team.name = team.name, name
            team.save(update_fields=["name"])
            audit.record(
                "team.change",
                kind="team",
                target=team,
                label=team.slug,
                team=team,
                before={"name": old},
                after={"name": name},
            )
            send_accounts_changed(team.pk, "team")
    return team
