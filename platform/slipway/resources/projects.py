"""Projects: the tenants everything else belongs to."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import (
    NetworkRule,
    ProjectChange,
    ProjectIn,
    ProjectOut,
    ReadmeIn,
    ReadmeOut,
)
from slipway.schemas.base import PageOf


class Projects:
    """The projects the caller can see."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, search: str | None = None, archived: bool = False) -> Pages[ProjectOut]:
        """List projects whose name or slug holds `search`. `archived` lists the archived ones."""
        filters = {"q": search, "archived": "true" if archived else None}
        return Pages(self._connection, ("projects",), PageOf[ProjectOut], filters)

    def get(self, slug: str) -> ProjectOut:
        """Return one project."""
        return self._connection.fetch(ProjectOut, "GET", "projects", slug)

    def create(
        self,
        name: str,
        *,
        slug: str | None = None,
        description: str | None = None,
        team: str | None = None,
    ) -> ProjectOut:
        """Create a project, in the team with the slug `team` or on one's own.

        Without `slug` the server makes one from the name.
        """
        body = build(ProjectIn, name=name, slug=slug, description=description, team=team)
        return self._connection.fetch(ProjectOut, "POST", "projects", body=body)

    def edit(
        self,
        slug: str,
        *,
        name: str | None = None,
        description: str | None = None,
        network: NetworkRule | None = None,
    ) -> ProjectOut:
        """Change the given fields. The slug stays.

        `network` is for owners: with `platform` tasks that start from now on reach the portal and
        the gateways and nothing else.
        """
        body = build(ProjectChange, name=name, description=description, network=network)
        return self._connection.fetch(ProjectOut, "PATCH", "projects", slug, body=body)

    def readme(self, slug: str) -> ReadmeOut:
        """Return the README of a project. Version 0 means that there is none yet."""
        return self._connection.fetch(ReadmeOut, "GET", "projects", slug, "readme")

    def save_readme(self, slug: str, text: str, *, version: int) -> ReadmeOut:
        """Save a README in Markdown, edited from `version` (0 for the first one).

        Raises Conflict, and saves nothing, if somebody has saved another version meanwhile.
        """
        body = build(ReadmeIn, text=text, version=version)
        return self._connection.fetch(ReadmeOut, "PUT", "projects", slug, "readme", body=body)

    def archive(self, slug: str) -> None:
        """Archive a project: nothing runs in it any more. `restore` undoes it."""
        self._connection.send("DELETE", "projects", slug)

    def restore(self, slug: str) -> ProjectOut:
        """Bring an archived project back."""
        return self._connection.fetch(ProjectOut, "POST", "projects", slug, "restore")
