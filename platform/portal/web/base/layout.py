"""Data of the layout around every page. Queries run only when a template asks for them."""

from dataclasses import dataclass
from functools import cached_property

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import slugify

from portal.accounts.models import Project, Team
from portal.accounts.models.tenancy import Group
from portal.accounts.principal import Principal, principal_of
from portal.core.errors import Unauthenticated
from portal.web.base.navigation import (
    GROUP_ICONS,
    IN_PROJECT,
    IN_SETTINGS,
    IN_TEAM,
    RAIL,
    NavigationEntry,
)
from portal.web.streams.sse import newest_id
from slipway.schemas.accounts import Role

SWITCHER_PROJECTS = 8
# Groups of the navigation that the person has opened, separated by dots (navigation.js).
NAVIGATION_COOKIE = "slipway-navigation"


@dataclass(frozen=True)
class NavigationLink:
    """An entry of the rail with its address."""

    label: str
    icon: str
    url: str
    section: str


@dataclass(frozen=True)
class NavigationGroup:
    """Entries of the rail behind one button. `slug` names the group in the cookie."""

    label: str
    icon: str
    slug: str
    links: list[NavigationLink]
    was_opened: bool

    @property
    def sections(self) -> list[str]:
        """The sections of its pages: on each of them the group is open."""
        return [link.section for link in self.links]


class Shell:
    """Layout of a page: its user, its place in the navigation, and the other pages."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @cached_property
    def principal(self) -> Principal | None:
        """The person behind the page, or None."""
        try:
            return principal_of(self._request)
        except Unauthenticated:
            return None

    @property
    def project(self) -> Project | None:
        """The project the page belongs to."""
        project: Project | None = getattr(self._request, "gated_project", None)
        return project

    @property
    def has_mail(self) -> bool:
        """True if mails are sent. If not, they are files in the data folder's outbox."""
        return bool(settings.SLIPWAY_HAS_MAIL)

    @property
    def team(self) -> Team | None:
        """The team the page belongs to."""
        team: Team | None = getattr(self._request, "gated_team", None)
        return team

    @property
    def role(self) -> Role | None:
        """The person's role in the page's project or team."""
        role: Role | None = getattr(self._request, "gated_role", None)
        return role

    @cached_property
    def switcher(self) -> list[Project]:
        """The newest projects of the person, for the switcher on top."""
        if self.principal is None:
            return []
        return list(self.principal.projects().live().order_by("-pk")[:SWITCHER_PROJECTS])

    @property
    def rail(self) -> list[NavigationLink]:
        """The sections of the navigation."""
        return [_link(entry) for entry in RAIL]

    @property
    def local(self) -> list[NavigationLink | NavigationGroup]:
        """The pages of the project or team the page belongs to."""
        if self.project is not None:
            return self._permitted_links(IN_PROJECT, self.project)
        if self.team is not None:
            return self._permitted_links(IN_TEAM, self.team)
        return []

    @property
    def settings(self) -> list[NavigationLink]:
        """The settings pages of the person."""
        return [_link(entry) for entry in IN_SETTINGS if self._may_see(entry)]

    @property
    def events_url(self) -> str:
        """URL of the event stream of this page, beginning at the time of the request."""
        if self.project is not None:
            url = reverse("project_events", args=[self.project.slug])
        elif self.team is not None:
            url = reverse("team_events", args=[self.team.slug])
        else:
            url = reverse("events")
        since = getattr(self._request, "live_position", None)
        return f"{url}?since={newest_id() if since is None else since}"

    def _may_see(self, entry: NavigationEntry) -> bool:
        if entry.administrators:
            return self.principal is not None and self.principal.user.is_administrator
        return True

    def _permitted_links(
        self, entries: tuple[NavigationEntry, ...], group: Group
    ) -> list[NavigationLink | NavigationGroup]:
        role = self.role or Role.VIEWER
        opened = self._request.COOKIES.get(NAVIGATION_COOKIE, "").split(".")
        links: list[NavigationLink | NavigationGroup] = []
        groups: dict[str, NavigationGroup] = {}
        for entry in entries:
            if not role.at_least(entry.role):
                continue
            link = _link(entry, group.slug)
            if not entry.group:
                links.append(link)
                continue
            if entry.group not in groups:
                slug = slugify(entry.group)
                groups[entry.group] = NavigationGroup(
                    entry.group, GROUP_ICONS[entry.group], slug, [], slug in opened
                )
                links.append(groups[entry.group])
            groups[entry.group].links.append(link)
        return links


def _link(entry: NavigationEntry, *args: str) -> NavigationLink:
    return NavigationLink(entry.label, entry.icon, reverse(entry.route, args=args), entry.section)
