"""Interface to an app that runs jobs, which notebooks need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from portal.accounts.models import Project, User
from portal.workloads.models import Workload
from slipway.schemas.training import Quote


@dataclass(frozen=True)
class NotebookJobSpec:
    """A notebook to run as a job. `args` go to the program that runs it."""

    name: str
    script: str
    tier: str | None
    args: Sequence[str] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    requirements: str = ""
    environment: str | None = None
    max_hours: float | None = None
    pool: str | None = None


class Jobs(Protocol):
    """Stores code and runs it."""

    def store_code(self, *, project: Project, by: User, tar: Iterable[bytes]) -> str:
        """Store code and return its digest. Call it outside a transaction."""

    def submit(self, *, project: Project, by: User, code: str, spec: NotebookJobSpec) -> Workload:
        """Queue the job, inside the caller's transaction. Raises what submitting a job raises."""

    def quote(self, *, project: Project, by: User, spec: NotebookJobSpec) -> Quote:
        """Return the cost, and whether the job would wait."""


_jobs: list[Jobs] = []


def register_jobs(jobs: Jobs) -> None:
    """Register the app that runs jobs. Called once, from its wiring."""
    _jobs[:] = [jobs]


def jobs() -> Jobs:
    """Return who runs jobs."""
    return _jobs[0]
