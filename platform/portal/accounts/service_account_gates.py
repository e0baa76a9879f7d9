"""Policies of service accounts: the project's policy, and the account that the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project, ServiceAccount


class ServiceAccountRole(ProjectObject[ServiceAccount]):
    """Members of the project with at least `role`, for a service account of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> ServiceAccount | None:
        """Return the account by its name, unless it is deleted."""
        accounts = ServiceAccount.objects.of_project(project)
        return accounts.filter(name=path["account"]).first()


def gated_account(request: HttpRequest) -> ServiceAccount:
    """Return the service account the gate let this request reach."""
    return ServiceAccountRole.stored(request)
