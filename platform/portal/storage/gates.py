"""Policies of files: the project's policy, applied to the file's project."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectRole
from portal.accounts.principal import authenticate_as, require_principal
from portal.core.errors import NotFound
from portal.storage.models import StoredFile
from portal.storage.signing import Grant, redeem

LINK_PARAMETER = "link"


@dataclass(frozen=True)
class FileRole(ProjectRole):
    """Members of the project of the file in the path. With `linked`, a signed link is accepted too.

    A link is checked alone, whatever else the request carries, and the person who created it must
    still pass this very gate.
    """

    parameter: str = "file_id"
    linked: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound (not a member) or Forbidden (role or scope too low)."""
        file_id = path[self.parameter]
        if self.linked and LINK_PARAMETER in request.GET:
            _authenticate_by_link(request, file_id)
        principal = require_principal(request)
        files = StoredFile.objects.visible_to(principal).select_related("project", "blob")
        file = files.filter(pk=file_id).first()
        if file is None:
            raise NotFound
        super().check(request, {self.parameter: file.project.slug})
        request.gated_file = file  # type: ignore[attr-defined]

    def describe(self) -> str:
        link = ", or a link created by one of them" if self.linked else ""
        return f"file's project {self.role.value}{link}"


@dataclass(frozen=True)
class UploadLink(ProjectRole):
    """Holders of an upload link, created by a member of its project who still has the role."""

    parameter: str = "file_id"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise NotFound for a bad link, Forbidden when its maker's role or scope is too low."""
        grant = _authenticate_by_link(request, path[self.parameter])
        projects = require_principal(request).projects()
        project = projects.filter(pk=grant.project_id).first()
        if project is None:
            raise NotFound
        super().check(request, {self.parameter: project.slug})
        request.gated_grant = grant  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"an upload link, created by a project {self.role.value}"


def _authenticate_by_link(request: HttpRequest, file_id: str) -> Grant:
    items = redeem(
        request.GET.get(LINK_PARAMETER, ""), method=request.method or "", file_id=file_id
    )
    if items is None:
        raise NotFound
    grant, principal = items
    authenticate_as(request, principal)
    return grant


def gated_file(request: HttpRequest) -> StoredFile:
    """Return the file stored by the gate of this request."""
    file: StoredFile = request.gated_file  # type: ignore[attr-defined]
    return file


def gated_grant(request: HttpRequest) -> Grant:
    """Return the grant of the link of this request."""
    grant: Grant = request.gated_grant  # type: ignore[attr-defined]
    return grant
