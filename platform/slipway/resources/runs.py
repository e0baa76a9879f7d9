"""Runs: search, compare, change, delete, curves and artifacts."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from slipway.connection import Connection, Download, Query, address
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.resources.saved_views import SavedViews
from slipway.schemas.base import PageOf
from slipway.schemas.experiments import (
    ArtifactOut,
    Axis,
    ComparisonOut,
    CurveOut,
    RunChange,
    RunDetailOut,
    RunIds,
    RunOut,
    RunsMoved,
    RunsTagged,
    RunsToMove,
)
from slipway.schemas.logged_models import LoggedModelOut


class Runs:
    """The runs of a project. `run` is the id of one, as MLflow knows it.

    GET projects/{project}/runs · GET, PATCH …/{run} · GET …/compare, curves · POST …/delete,
    restore, tag, move · GET …/{run}/artifacts, artifacts/content, models

    `views` are the saved views of lists of runs.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.views = SavedViews(connection)

    def page(self, run: str, *, project: str) -> str:
        """Return the address of the page of a run, for a browser."""
        return f"{self._connection.url}{address('p', project, 'runs', run)}"

    def list(
        self,
        *,
        project: str,
        search: str | None = None,
        filter: str | None = None,  # noqa: A002  (as in MLflow's filters)
        experiments: Sequence[int] = (),
        order: str | None = None,
        columns: Sequence[str] = (),
        deleted: bool = False,
    ) -> Pages[RunOut]:
        """Find runs by MLflow's filter syntax, newest first unless `order` says otherwise.

        Each word of `search` is in the name, the person, a tag or a parameter, or begins the id.
        `order` is a field such as `metrics.loss`, with a `-` in front for descending. `columns`
        are the fields whose values come along, all when none is named.
        """
        query = {
            "search": search,
            "filter": filter,
            "experiment": [str(number) for number in experiments],
            "order": order,
            "columns": [*columns],
            "stage": "deleted" if deleted else None,
        }
        return Pages(self._connection, ("projects", project, "runs"), PageOf[RunOut], query)

    def get(self, run: str, *, project: str) -> RunDetailOut:
        """Return one run, in use or in the trash."""
        return self._connection.fetch(RunDetailOut, "GET", *_path(project, run))

    def compare(self, runs: Sequence[str], *, project: str) -> ComparisonOut:
        """Return up to 200 runs side by side: which parameters differ, their last metrics."""
        segments = ("projects", project, "runs", "compare")
        return self._connection.fetch(ComparisonOut, "GET", *segments, query={"run": [*runs]})

    def curves(
        self,
        runs: Sequence[str],
        keys: Sequence[str],
        *,
        project: str,
        points: int = 1_000,
        axis: Axis = "step",
        start: int | None = None,
        end: int | None = None,
    ) -> Sequence[CurveOut]:
        """Return metrics over time, each of about `points` points at most.

        Of longer curves the lowest and highest points of each stretch along `axis` are kept.
        `start` and `end` limit them to a part of the axis, both included: steps, or milliseconds
        since 1970 when `axis` is "time".
        """
        query: Query = {
            "run": [*runs],
            "key": [*keys],
            "points": points,
            "axis": axis,
            "start": start,
            "end": end,
        }
        return self._connection.fetch_list(
            CurveOut, "projects", project, "runs", "curves", query=query
        )

    def update(
        self,
        run: str,
        *,
        project: str,
        name: str | None = None,
        note: str | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> RunDetailOut:
        """Change the name, the notes (Markdown) and tags of a run. A tag of None is removed."""
        body = build(RunChange, name=name, note=note, tags=None if tags is None else dict(tags))
        return self._connection.fetch(RunDetailOut, "PATCH", *_path(project, run), body=body)

    def tag(
        self, runs: Sequence[str], tags: Mapping[str, str | None], *, project: str
    ) -> Sequence[str]:
        """Set tags of runs, remove those that are None, and return the changed runs."""
        body = build(RunsTagged, runs=[*runs], tags=dict(tags))
        segments = ("projects", project, "runs", "tag")
        return self._connection.fetch(RunsMoved, "POST", *segments, body=body).runs

    def move(self, runs: Sequence[str], experiment: int, *, project: str) -> Sequence[str]:
        """Move runs to another experiment of the project, and return the moved ones."""
        body = build(RunsToMove, runs=[*runs], experiment=experiment)
        segments = ("projects", project, "runs", "move")
        return self._connection.fetch(RunsMoved, "POST", *segments, body=body).runs

    def delete(self, runs: Sequence[str], *, project: str) -> Sequence[str]:
        """Move runs to the trash, and return the newly moved ones."""
        body = build(RunIds, runs=[*runs])
        segments = ("projects", project, "runs", "delete")
        return self._connection.fetch(RunsMoved, "POST", *segments, body=body).runs

    def restore(self, runs: Sequence[str], *, project: str) -> Sequence[str]:
        """Restore runs from the trash, and return which were restored."""
        body = build(RunIds, runs=[*runs])
        segments = ("projects", project, "runs", "restore")
        return self._connection.fetch(RunsMoved, "POST", *segments, body=body).runs

    def artifacts(self, run: str, *, project: str, path: str = "") -> Sequence[ArtifactOut]:
        """Return the content of a folder of a run's artifacts, folders first."""
        query = {"path": path}
        segments = (*_path(project, run), "artifacts")
        return self._connection.fetch_list(ArtifactOut, *segments, query=query)

    def models(self, run: str, *, project: str) -> Sequence[LoggedModelOut]:
        """Return the models that a run logged, newest first, 50 at most."""
        return self._connection.fetch_list(LoggedModelOut, *_path(project, run), "models")

    def download(self, run: str, path: str, *, project: str) -> AbstractContextManager[Download]:
        """Receive an artifact: `with … as file: for chunk in file`."""
        segments = (*_path(project, run), "artifacts", "content")
        return self._connection.stream(*segments, query={"path": path})


def _path(project: str, run: str) -> tuple[str, str, str, str]:
    return ("projects", project, "runs", run)
