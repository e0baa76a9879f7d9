"""Presentation of workloads by kind: icon, page, search. Each kind registers its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from portal.accounts.models import Project
from portal.accounts.principal import Principal


@dataclass(frozen=True)
class PageAddress:
    """Name of a URL of the portal, and its arguments after the project's slug."""

    name: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class SearchHit:
    """An object that a search by name found, as a line of the command palette."""

    label: str
    noun: str
    project: Project
    page: PageAddress


class PaletteSearch(Protocol):
    """Finds what workloads of a kind belong to, by name."""

    def __call__(
        self, *, principal: Principal, project: Project | None, text: str, limit: int
    ) -> Sequence[SearchHit]:
        """Return the newest hits in live projects of the principal, of `project` if given.

        An empty `text` matches every name.
        """


def _generic_page(workload_id: str) -> PageAddress | None:
    return None


@dataclass(frozen=True)
class Presentation:
    """Presentation of a kind on pages.

    `page_of` returns the page of a workload by its id, or None for the generic page of workloads.
    `resume_page` is the URL name that resumes a workload which a budget stopped, empty if none
    can be resumed; its arguments are the project's slug and the workload's id. `search_noun` is the
    plural of what the command palette finds, empty for a kind that it does not search. Without
    `search` it finds workloads by their names.
    """

    icon: str = "cpu"
    page_of: Callable[[str], PageAddress | None] = _generic_page
    resume_page: str = ""
    search_noun: str = ""
    search: PaletteSearch | None = None
