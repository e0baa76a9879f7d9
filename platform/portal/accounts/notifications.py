"""Notifications: what needs a person now. Apps register a source for each of their causes.

Nothing is stored. A notification is there as long as its cause is, so it can be neither lost nor
out of date, and nobody has to mark it as read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeVar
from urllib.parse import urlencode

from django.db.models import Model, QuerySet
from django.urls import reverse

from portal.accounts.models import Project
from portal.accounts.models.tenancy import roles_in
from portal.accounts.principal import Principal
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.notifications import NotificationKind

# The most notifications that one source lists. It counts the others.
_MOST_OF_A_SOURCE = 50
RowT = TypeVar("RowT", bound=Model)


@dataclass(frozen=True)
class Notification:
    """An open cause. `route`, `arguments` and `query` name the page where it is solved.

    `project` is None for causes outside of projects, such as the budget of a person.
    """

    id: str
    kind: NotificationKind
    project: Project | None
    title: str
    reason: str
    next_step: str
    route: str
    arguments: tuple[str | int, ...]
    since: datetime
    waits_for_you: bool = False
    query: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """Path of the page where it is solved, with its query."""
        path = reverse(self.route, args=self.arguments)
        return f"{path}?{urlencode(self.query)}" if self.query else path


@dataclass(frozen=True)
class Listed:
    """The first notifications of a source, and how many more it has."""

    items: Sequence[Notification] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Audience:
    """The reader of notifications. `project` limits them to one project."""

    principal: Principal
    projects: dict[str, Project]
    project: Project | None = None

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The reader's role in each of the projects, by the project's id."""
        return roles_in(self.principal.user, self.projects.values())


@dataclass(frozen=True)
class Notifications:
    """All that a person sees. `missing` are scopes that the person's token lacks."""

    items: Sequence[Notification]
    left_out: int
    missing: Sequence[Scope]

    @property
    def count(self) -> int:
        """Number of all open notifications."""
        return len(self.items) + self.left_out

    @property
    def waiting(self) -> Sequence[Notification]:
        """Notifications that wait for the reader."""
        return [item for item in self.items if item.waits_for_you]


def newest_of(rows: QuerySet[RowT], build: Callable[[RowT], Notification | None]) -> Listed:
    """Return the newest rows as notifications. `build` returns None for a row to skip."""
    newest = list(rows.order_by("-pk")[: _MOST_OF_A_SOURCE + 1])
    left_out = rows.count() - _MOST_OF_A_SOURCE if len(newest) > _MOST_OF_A_SOURCE else 0
    items = (build(row) for row in newest[:_MOST_OF_A_SOURCE])
    return Listed([item for item in items if item is not None], left_out)


Source = Callable[[Audience], Listed]
_sources: list[tuple[Scope, Source]] = []


def register_notifications(scope: Scope, source: Source) -> None:
    """Register the source of one cause. Callers whose token lacks `scope` do not get it."""
    _sources.append((scope, source))


def notifications_for(principal: Principal, project: Project | None = None) -> Notifications:
    """Return the open notifications, those that wait for the reader first, then the newest.

    `project` limits them to one project that the reader can see.
    """
    projects = [project] if project else principal.projects().live().select_related("team")
    audience = Audience(principal, {row.pk: row for row in projects}, project)
    allowed = [source for scope, source in _sources if principal.allows(scope)]
    missing = {scope for scope, _ in _sources if not principal.allows(scope)}
    lists = [source(audience) for source in allowed]
    items = [item for listed in lists for item in listed.items]
    items.sort(key=lambda item: (not item.waits_for_you, -item.since.timestamp(), item.id))
    return Notifications(items, sum(listed.left_out for listed in lists), sorted(missing))
