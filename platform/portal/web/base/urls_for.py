"""URLs of the pages of objects."""

from django.http import HttpRequest
from django.urls import reverse

from portal.accounts.gates import gated_project, gated_team
from portal.accounts.models import Team
from portal.accounts.models.tenancy import Group
from portal.workloads.presentation import SearchHit


def address_of(group: Group, page: str = "", *args: str) -> str:
    """The address of a team or project, or of one of its pages (`members`, `audit`, …)."""
    noun = "team" if isinstance(group, Team) else "project"
    return reverse(f"{noun}_{page}" if page else noun, args=[group.slug, *args])


def url_of_hit(hit: SearchHit) -> str:
    """Return the URL of the page of a search hit."""
    return reverse(hit.page.name, args=[hit.project.slug, *hit.page.args])


def url_of_workload(project_slug: str, workload_id: str) -> str:
    """Return the URL of the page of a workload of any kind. It redirects to the kind's own."""
    return reverse("project_workload", args=[project_slug, workload_id])


def gated_group(request: HttpRequest) -> Group:
    """The project or team the gate let this request into."""
    return gated_project(request) if hasattr(request, "gated_project") else gated_team(request)
