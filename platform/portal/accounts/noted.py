"""Kinds of objects of projects that people write notes about. Apps register theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project


@dataclass(frozen=True)
class NotedKind:
    """A kind of objects with notes, as addresses name it, and the noun that people read.

    `find` returns the id and the label of an object of a project by what addresses name it by, its
    id or its name. `page` is the route of an object's page, whose arguments are the project's slug
    and that, and `section` the entry of the navigation.
    """

    name: str
    noun: str
    page: str
    section: str
    find: Callable[[Project, str], tuple[str, str] | None]


@dataclass(frozen=True)
class NotedObject:
    """An object that notes are about. `label` is its name, `path` what addresses name it by."""

    kind: NotedKind
    id: str
    label: str
    path: str


_kinds: dict[str, NotedKind] = {}


def register_noted(kind: NotedKind) -> None:
    """Let people write notes about objects of a kind. Called once, from an app's wiring."""
    _kinds[kind.name] = kind


def noted_kinds() -> tuple[NotedKind, ...]:
    """Return the kinds of objects that have notes."""
    return tuple(_kinds.values())


class NotedRole(ProjectObject[NotedObject]):
    """Members of the project with at least `role`, for an object of that project with notes."""

    def find(self, project: Project, path: dict[str, Any]) -> NotedObject | None:
        """Return the object by the kind and the name or id in the path."""
        kind = _kinds.get(path["kind"])
        match = kind and kind.find(project, path["target"])
        return NotedObject(kind, *match, path["target"]) if kind and match else None
