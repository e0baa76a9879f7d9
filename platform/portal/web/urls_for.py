"""URLs of the pages of objects."""

from django.http import HttpRequest
from django.urls import reverse

from portal.accounts.gates import gated_project, gated_team
from portal.accounts.models import Team
from portal.accounts.models.tenancy import Group


def address_of(group: Group, page: str = "", *args: str) -> str:
    """The address of a team or project, or of one of its pages (`members`, `audit`, …)."""
    noun = "team" if isinstance(group, Team) else "project"
    return reverse(f"{noun}_{page}" if page else noun, args=[group.slug, *args])


def gated_group(request: HttpRequest) -> Group:
    """The project or team the gate let this request into."""
    return gated_project(request) if hasattr(request, "gated_project") else gated_team(request)
