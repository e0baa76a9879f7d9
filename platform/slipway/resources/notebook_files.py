"""Notebook files: saved, looked into, restored, verified, run as jobs."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from slipway.connection import Connection, Download, address
from slipway.errors import NotFound
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.notebook_files import (
    BranchIn,
    NotebookFileOut,
    NotebookRunOut,
    NotebookVersionOut,
    RestoreIn,
    RunIn,
    VerifyIn,
)


@dataclass(frozen=True)
class _Notebook:
    """A notebook on its way up."""

    content: bytes
    digest: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def pieces(self) -> Iterator[bytes]:
        yield self.content


class NotebookFiles:
    """The notebooks of a project. `notebook` is its path there, or its id."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, notebook: str, *, project: str) -> str:
        """Return the address of the history of a notebook, for a browser."""
        place = address("p", project, "notebooks", "files", notebook)
        return f"{self._connection.url}{place}"

    def save(self, path: str, content: bytes, *, project: str) -> NotebookFileOut:
        """Keep a notebook as its newest version, unless that says the same already."""
        segments = ("projects", project, "notebook-files")
        sent = _Notebook(content)
        return self._connection.upload(
            NotebookFileOut, *segments, content=sent, query={"path": path}
        )

    def list(
        self, *, project: str, search: str | None = None, deleted: bool = False
    ) -> Pages[NotebookFileOut]:
        """List notebooks, newest first, or those whose deletion can be undone."""
        segments = ("projects", project, "notebook-files")
        query = {"q": search, "deleted": "true" if deleted else None}
        return Pages(self._connection, segments, PageOf[NotebookFileOut], query)

    def get(self, notebook: str, *, project: str) -> NotebookFileOut:
        """Return one notebook, by its path or its id."""
        if not notebook.endswith(".ipynb"):
            return self._connection.fetch(NotebookFileOut, "GET", *_path(project, notebook))
        return self._find_by_path(notebook, project=project, deleted=False)

    def delete(self, notebook: str, *, project: str) -> None:
        """Delete a notebook with its versions. `undelete` undoes it for three days.

        `notebook` is an id. A copy in a workspace stays, and its next save begins another history.
        """
        self._connection.send("DELETE", *_path(project, notebook))

    def undelete(self, notebook: str, *, project: str) -> NotebookFileOut:
        """Undo a deletion, by the path of the notebook or its id."""
        if notebook.endswith(".ipynb"):
            notebook = self._find_by_path(notebook, project=project, deleted=True).id
        segments = (*_path(project, notebook), "undelete")
        return self._connection.fetch(NotebookFileOut, "POST", *segments)

    def _find_by_path(self, path: str, *, project: str, deleted: bool) -> NotebookFileOut:
        for file in self.list(project=project, search=path[-100:], deleted=deleted):
            if file.path == path:
                return file
        word = "deleted notebook" if deleted else "notebook"
        option = " --deleted" if deleted else ""
        raise NotFound(
            f"There is no {word} {path} in the project.",
            next_step=f"See which there are: slipway notebook files{option}",
        )

    def versions(self, notebook: str, *, project: str) -> Pages[NotebookVersionOut]:
        """List the versions of a notebook, newest first. `notebook` is an id."""
        segments = (*_path(project, notebook), "versions")
        return Pages(self._connection, segments, PageOf[NotebookVersionOut])

    def read(
        self, notebook: str, version: int, *, project: str
    ) -> AbstractContextManager[Download]:
        """Download a version as the .ipynb that was saved. `notebook` is an id."""
        segments = (*_path(project, notebook), "versions", str(version), "content")
        return self._connection.stream(*segments)

    def restore(self, notebook: str, version: int, *, project: str) -> NotebookVersionOut:
        """Make an old version the newest again. `notebook` is an id."""
        body = build(RestoreIn, version=version)
        segments = (*_path(project, notebook), "restore")
        return self._connection.fetch(NotebookVersionOut, "POST", *segments, body=body)

    def branch(
        self, notebook: str, path: str, *, project: str, version: int | None = None
    ) -> NotebookFileOut:
        """Create a notebook at `path` from a version of this one. `notebook` is an id."""
        body = build(BranchIn, path=path, version=version)
        segments = (*_path(project, notebook), "branch")
        return self._connection.fetch(NotebookFileOut, "POST", *segments, body=body)

    def verify(
        self,
        notebook: str,
        *,
        project: str,
        version: int | None = None,
        tier: str | None = None,
        requirements: str | None = None,
        environment: str | None = None,
    ) -> NotebookRunOut:
        """Run a version in a clean kernel as a job, and compare. `notebook` is an id."""
        body = build(
            VerifyIn,
            version=version,
            tier=tier,
            requirements=requirements,
            environment=environment,
        )
        segments = (*_path(project, notebook), "verify")
        return self._connection.fetch(NotebookRunOut, "POST", *segments, body=body)

    def start(
        self,
        notebook: str,
        *,
        project: str,
        version: int | None = None,
        name: str | None = None,
        tier: str | None = None,
        params: Mapping[str, object] | None = None,
        requirements: str | None = None,
        environment: str | None = None,
        max_hours: float | None = None,
        pool: str | None = None,
    ) -> NotebookRunOut:
        """Run a version as a job, `params` in place of its parameters. `notebook` is an id."""
        body = build(
            RunIn,
            version=version,
            name=name,
            tier=tier,
            params=None if params is None else {key: str(item) for key, item in params.items()},
            requirements=requirements,
            environment=environment,
            max_hours=max_hours,
            pool=pool,
        )
        segments = (*_path(project, notebook), "run")
        return self._connection.fetch(NotebookRunOut, "POST", *segments, body=body)

    def runs(self, notebook: str, *, project: str) -> Pages[NotebookRunOut]:
        """List verifications and runs of a notebook, newest first. `notebook` is an id."""
        segments = (*_path(project, notebook), "runs")
        return Pages(self._connection, segments, PageOf[NotebookRunOut])

    def run(self, job: str, *, project: str) -> NotebookRunOut:
        """Return a notebook job, with the result of its verification."""
        segments = ("projects", project, "notebook-runs", job)
        return self._connection.fetch(NotebookRunOut, "GET", *segments)

    def output(self, job: str, *, project: str) -> AbstractContextManager[Download]:
        """Receive the output notebook of a job, as far as it has come."""
        return self._connection.stream("projects", project, "notebook-runs", job, "output")


def _path(project: str, notebook: str) -> tuple[str, ...]:
    return ("projects", project, "notebook-files", notebook)
