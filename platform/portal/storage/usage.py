"""Stored bytes of each project. Apps that store something register a counter."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import QuerySet, Sum

from portal.storage.models import StoredFile

# Returns bytes by the id of the project. Only reads the database.
Counter = Callable[[], Mapping[str, int]]
# Returns ids of files.
Ids = Callable[[], QuerySet[Any, Any]]


def count_files() -> Mapping[str, int]:
    """Count the bytes of the files of each project. Bytes of two of its files count twice."""
    files = StoredFile.objects.order_by()
    for ids in _counted_elsewhere:
        files = files.exclude(pk__in=ids())
    sums = files.values_list("project").annotate(all=Sum("blob__size_bytes"))
    return {project: int(size or 0) for project, size in sums}


_counters: dict[str, Counter] = {"files": count_files}
_counted_elsewhere: list[Ids] = []


def register_stored(what: str, counter: Counter) -> None:
    """Register a counter of a sort of stored bytes, from an app's wiring."""
    _counters[what] = counter


def exclude_from_files(ids: Ids) -> None:
    """Exclude files from the sort `files`, because another sort counts them."""
    _counted_elsewhere.append(ids)


def stored_bytes() -> dict[str, Mapping[str, int]]:
    """Count the bytes stored now: sort → project → bytes."""
    return {what: counter() for what, counter in _counters.items()}
