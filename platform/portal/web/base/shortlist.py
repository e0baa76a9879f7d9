"""Lists of a page that show the first rows and count the others."""

from collections.abc import Iterable
from typing import TypeVar

from django.db.models import Model, QuerySet

T = TypeVar("T")
Shown = TypeVar("Shown")
M = TypeVar("M", bound=Model)


class Shortlist(list[T]):
    """The first rows of a list. `left_out` counts the rows that are not in it."""

    left_out: int = 0

    def replaced_by(self, rows: Iterable[Shown]) -> "Shortlist[Shown]":
        """Return these rows as they are shown, with the same count of others."""
        shown = Shortlist(rows)
        shown.left_out = self.left_out
        return shown


def shortlist(rows: QuerySet[M], most: int) -> Shortlist[M]:
    """Return the first `most` rows. Further rows are counted only if there are any."""
    fetched = list(rows[: most + 1])
    shown = Shortlist(fetched[:most])
    if len(fetched) > most:
        shown.left_out = rows.count() - most
    return shown
