"""Workloads of any kind: jobs, notebook servers, replicas, and kinds without a resource."""

from collections.abc import Iterator, Sequence

from slipway.connection import Connection, address
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.training import SampleOut
from slipway.schemas.workloads import (
    WorkloadDetailOut,
    WorkloadEventOut,
    WorkloadOut,
    WorkloadState,
    WorkloadStop,
)


class Workloads:
    """The workloads of a project. `workload` is the id of one (`wl_…`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, workload: str, *, project: str) -> str:
        """Return the address of the page of a workload, for a browser."""
        return f"{self._connection.url}{address('p', project, 'workloads', workload)}"

    def list(
        self,
        *,
        project: str,
        kind: str | None = None,
        state: WorkloadState | str | None = None,
        parent: str | None = None,
        search: str | None = None,
    ) -> Pages[WorkloadOut]:
        """List workloads, newest first. Filters are combined with AND."""
        filters = {"kind": kind, "state": state, "parent": parent, "q": search}
        return Pages(self._connection, _path(project), PageOf[WorkloadOut], filters)

    def get(self, workload: str, *, project: str) -> WorkloadDetailOut:
        """Return one workload with its tasks, newest events and logs."""
        return self._connection.fetch(WorkloadDetailOut, "GET", *_path(project), workload)

    def stop(self, workload: str, *, project: str, message: str | None = None) -> WorkloadOut:
        """Stop a workload. `message` is shown on its page. An ended one stays unchanged."""
        body = build(WorkloadStop, message=message)
        return self._connection.fetch(
            WorkloadOut, "POST", *_path(project), workload, "stop", body=body
        )

    def events(self, workload: str, *, project: str) -> Pages[WorkloadEventOut]:
        """List the events of a workload, newest first."""
        segments = (*_path(project), workload, "events")
        return Pages(self._connection, segments, PageOf[WorkloadEventOut])

    def samples(
        self, workload: str, *, project: str, attempt: int | None = None
    ) -> Sequence[SampleOut]:
        """Return the resource usage of an attempt, by default the latest, oldest first."""
        segments = (*_path(project), workload, "samples")
        return self._connection.fetch_list(SampleOut, *segments, query={"attempt": attempt})

    def log(
        self,
        workload: str,
        *,
        project: str,
        rank: int = 0,
        attempt: int | None = None,
        offset: int = 0,
    ) -> Iterator[bytes]:
        """Yield the log of one rank as it is so far, in pieces, from byte `offset` on.

        Without `attempt` it is the latest.
        """
        attempt = attempt or max(1, self.get(workload, project=project).attempt)
        while True:
            query = {"rank": rank, "attempt": attempt, "offset": offset}
            segments = (*_path(project), workload, "log")
            with self._connection.stream(*segments, query=query) as body:
                yield from body
                following = body.number("X-Slipway-Next-Offset", offset) or 0
            if following <= offset:
                return
            offset = following


def _path(project: str) -> tuple[str, ...]:
    return ("projects", project, "workloads")
