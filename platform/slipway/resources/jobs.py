"""Training jobs: submitted, followed, stopped, repeated."""

import time
from collections.abc import Iterator, Mapping, Sequence

from slipway.connection import Connection, address
from slipway.errors import ConnectionFailed
from slipway.job_shell import JobShell
from slipway.log_stream import News, Trouble, follow, offset_of
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.backends import BackendName
from slipway.schemas.base import PageOf
from slipway.schemas.dashboards import DashboardOut
from slipway.schemas.shells import ShellIn, ShellOut
from slipway.schemas.training import (
    LOG_READ_BYTES,
    CheckpointOut,
    GitFacts,
    JobEdit,
    JobIn,
    JobOut,
    Quote,
    SampleOut,
)
from slipway.schemas.workloads import (
    BuildOut,
    EnvironmentOut,
    WorkloadEventOut,
    WorkloadState,
)

PATIENCE_S = 300.0
_LOG_TRIES = 5
_FIRST_LOOK_S, _LATER_LOOKS_S = 0.1, 2.0


class Jobs:
    """The training jobs of a project. `job` is the id of one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, job: str, *, project: str) -> str:
        """Return the address of the page of a job, for a browser."""
        return f"{self._connection.url}{address('p', project, 'jobs', job)}"

    def list(
        self,
        *,
        project: str,
        search: str | None = None,
        state: WorkloadState | str | None = None,
        submitted_by: str | None = None,
        tier: str | None = None,
    ) -> Pages[JobOut]:
        """List jobs, newest first. Filters are combined with AND."""
        filters = {"q": search, "state": state, "submitted_by": submitted_by, "tier": tier}
        return Pages(self._connection, ("projects", project, "jobs"), PageOf[JobOut], filters)

    def get(self, job: str, *, project: str) -> JobOut:
        """Return one job in its present state."""
        return self._connection.fetch(JobOut, "GET", *_path(project, job))

    def submit(
        self,
        script: str,
        *,
        project: str,
        snapshot: str,
        git: GitFacts | None = None,
        name: str | None = None,
        parent: str | None = None,
        args: Sequence[str] = (),
        params: Mapping[str, object] | None = None,
        nodes: int = 1,
        procs: int = 1,
        strategy: str | None = None,
        framework: str | None = None,
        backend: BackendName | None = None,
        tier: str | None = None,
        pool: str | None = None,
        requirements: str | None = None,
        requirements_file: str | None = None,
        environment: str | None = None,
        python: str | None = None,
        datasets: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        max_hours: float | None = None,
        hang_after_minutes: int | None = None,
        preemptible: bool = False,
        keep_failed_minutes: int | None = None,
        keep: Sequence[str] | None = None,
        keep_limit_bytes: int | None = None,
    ) -> JobOut:
        """Submit `script` of the snapshot with that digest. It runs on `nodes` times `procs` ranks.

        `params` reach the script as `--name=value` after `args`. `requirements` is the text of a
        requirements file, "" for no packages of its own. `requirements_file` is the path of one in
        the snapshot. `environment` is one of the project, such as `vision` or `vision@3`. Without
        these, the files nearest to the script count. `python` is a version such as `3.12`, without
        it that of .python-version or requires-python. In a `pool` another scheduler allocates the
        nodes. `datasets` are versions that it reads (`digits:3`). Spend is split by `tags`. Files
        that it writes and that match a glob of `keep` are kept with its run, up to
        `keep_limit_bytes` for each node. A `preemptible` job costs less, and is moved when other
        work needs its place: it resumes from its checkpoint. A task that fails stays for
        `keep_failed_minutes`, so that you can open a shell in it. `slipway.train` does this for a
        folder of code. Raises InvalidInput for what can never run.
        """
        body = job_body(
            script=script,
            snapshot=snapshot,
            git=git,
            name=name,
            parent=parent,
            args=args,
            params=params,
            nodes=nodes,
            procs=procs,
            strategy=strategy,
            framework=framework,
            backend=backend,
            tier=tier,
            pool=pool,
            requirements=requirements,
            requirements_file=requirements_file,
            environment=environment,
            python=python,
            datasets=[*datasets] or None,
            tags=None if tags is None else {**tags},
            priority=priority,
            max_attempts=max_attempts,
            max_hours=max_hours,
            hang_after_minutes=hang_after_minutes,
            preemptible=preemptible or None,
            keep_failed_minutes=keep_failed_minutes,
            keep=None if keep is None else [*keep],
            keep_limit_bytes=keep_limit_bytes,
        )
        return self.submit_body(body, project=project)

    def submit_body(self, body: JobIn, *, project: str) -> JobOut:
        """Submit a prepared request body. See `job_body`."""
        return self._connection.fetch(JobOut, "POST", "projects", project, "jobs", body=body)

    def quote(self, body: JobIn, *, project: str) -> Quote:
        """Return the cost of such a job and whether it would wait. Nothing is submitted."""
        segments = ("projects", project, "jobs", "quote")
        return self._connection.fetch(Quote, "POST", *segments, body=body)

    def cancel(self, job: str, *, project: str) -> JobOut:
        """Stop a job. Its ranks may save a checkpoint first. One that has ended stays as it is.

        One that has failed and is kept ends as failed.
        """
        return self._connection.fetch(JobOut, "POST", *_path(project, job), "cancel")

    def resume(self, job: str, *, project: str) -> JobOut:
        """Carry on a job that a budget has stopped, from its newest checkpoint."""
        return self._connection.fetch(JobOut, "POST", *_path(project, job), "resume")

    def clone(
        self,
        job: str,
        *,
        project: str,
        name: str | None = None,
        snapshot: str | None = None,
        git: GitFacts | None = None,
        script: str | None = None,
        args: Sequence[str] | None = None,
        params: Mapping[str, object] | None = None,
        tier: str | None = None,
        pool: str | None = None,
        nodes: int | None = None,
        procs: int | None = None,
        strategy: str | None = None,
        framework: str | None = None,
        backend: BackendName | None = None,
        environment: str | None = None,
        python: str | None = None,
        datasets: Sequence[str] | None = None,
        tags: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        preemptible: bool | None = None,
        keep_failed_minutes: int | None = None,
    ) -> JobOut:
        """Submit a job again with the given changes. `params` replaces all of them."""
        body = build(
            JobEdit,
            name=name,
            snapshot=snapshot,
            git=git,
            script=script,
            args=None if args is None else [*args],
            params=None if params is None else _texts(params),
            tier=tier,
            pool=pool,
            nodes=nodes,
            procs=procs,
            strategy=strategy,
            framework=framework,
            backend=backend,
            environment=environment,
            python=python,
            datasets=None if datasets is None else [*datasets],
            tags=None if tags is None else {**tags},
            max_attempts=max_attempts,
            preemptible=preemptible,
            keep_failed_minutes=keep_failed_minutes,
        )
        return self._connection.fetch(JobOut, "POST", *_path(project, job), "clone", body=body)

    def open_shell(self, job: str, *, project: str, rank: int | None = None) -> JobShell:
        """Open a shell in the task of a rank that runs or is kept, with the rank's variables.

        Without `rank` it is the failed rank of a job that is kept, and else rank 0.
        """
        path = (*_path(project, job), "shells")
        details = self._connection.fetch(ShellOut, "POST", *path, body=ShellIn(rank=rank))
        return JobShell(self._connection, path, details)

    def open_dashboard(self, job: str, *, project: str) -> DashboardOut:
        """Open the dashboard of the cluster of a running job, with an address for one browser."""
        return self._connection.fetch(DashboardOut, "POST", *_path(project, job), "dashboards")

    def events(self, job: str, *, project: str) -> Pages[WorkloadEventOut]:
        """List the events of a job, newest first."""
        segments = (*_path(project, job), "events")
        return Pages(self._connection, segments, PageOf[WorkloadEventOut])

    def samples(self, job: str, *, project: str) -> Sequence[SampleOut]:
        """Return what the tasks used: CPU, memory, GPU."""
        return self._connection.fetch_list(SampleOut, *_path(project, job), "samples")

    def checkpoints(self, job: str, *, project: str) -> Sequence[CheckpointOut]:
        """Return the checkpoints that were verified."""
        return self._connection.fetch_list(CheckpointOut, *_path(project, job), "checkpoints")

    def logs(
        self,
        job: str,
        *,
        project: str,
        rank: int = 0,
        attempt: int | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Iterator[bytes]:
        """Yield the log of one rank as it is so far, in pieces, from byte `offset` on.

        Without `attempt` it is the latest. A connection that breaks is made again where it broke.
        """
        end = None if limit is None else offset + limit
        tries = 0
        while end is None or offset < end:
            query = {
                "rank": rank,
                "attempt": attempt,
                "offset": offset,
                "limit": LOG_READ_BYTES if end is None else min(LOG_READ_BYTES, end - offset),
            }
            before = offset
            try:
                with self._connection.stream(*_path(project, job), "logs", query=query) as body:
                    offset = offset_of(body, offset)
                    # Stay with this attempt even if a later one begins.
                    attempt = body.number("X-Log-Attempt", attempt)
                    size = body.number("X-Log-Size", None)
                    for piece in body:
                        offset += len(piece)
                        yield piece
            except ConnectionFailed:
                tries = tries + 1 if offset == before else 0
                if tries >= _LOG_TRIES:
                    raise
            else:
                if offset == before or (size is not None and offset >= size):
                    return

    def builds(self, job: str, *, project: str) -> Sequence[BuildOut]:
        """Return the builds of the environment of a job, by node. None without requirements."""
        environment = self.get(job, project=project).workload.environment
        if not environment:
            return []
        segments = ("projects", project, "environments", environment)
        return self._connection.fetch(EnvironmentOut, "GET", *segments).builds

    def build_log(self, job: str, *, project: str, node: str, offset: int = 0) -> Iterator[bytes]:
        """Yield the log of the latest build of the job's environment on `node`, as it is so far."""
        environment = self.get(job, project=project).workload.environment or "none"
        segments = ("projects", project, "environments", environment, "log")
        while True:
            before = offset
            query: dict[str, str | int] = {"node": node, "offset": offset}
            with self._connection.stream(*segments, query=query) as body:
                for piece in body:
                    offset += len(piece)
                    yield piece
            if offset == before:
                return

    def follow(
        self,
        job: str,
        *,
        project: str,
        rank: int | None = None,
        attempt: int | None = None,
        logs: bool = True,
        after: str | None = None,
        patience_s: float = PATIENCE_S,
        trouble: Trouble | None = None,
    ) -> Iterator[News]:
        """Yield the events of a job live, until it has ended or failed and all were received.

        First its state (`JobProgress`), then its log (`LogPiece`) of every rank from the beginning,
        or of one `rank` and `attempt`, each change, and its resource usage (`SampleOut`). A broken
        connection is reopened, for `patience_s` seconds, and no byte of a log is lost or repeated.
        `trouble` is called with each failure and the seconds until the next attempt.
        """
        return follow(
            self._connection,
            _path(project, job),
            rank=rank,
            attempt=attempt,
            logs=logs,
            after=after,
            patience_s=patience_s,
            trouble=trouble,
        )

    def wait(self, job: str, *, project: str, timeout_s: float | None = None) -> JobOut:
        """Return a job once it has ended in any way, or raise TimeoutError after `timeout_s`.

        A job that has failed has ended, also while its task is kept (`workload.kept_until`).
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            result = self.get(job, project=project)
            if result.workload.has_outcome:
                return result
            if deadline is not None and time.monotonic() + pause_s > deadline:
                raise TimeoutError(
                    f"The job {job} is {result.workload.state} after {timeout_s:g} s: "
                    f"{result.workload.explanation}"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LATER_LOOKS_S)


def job_body(
    *,
    args: Sequence[str] = (),
    params: Mapping[str, object] | None = None,
    **fields: object,
) -> JobIn:
    """Return the request body that submits or quotes a job, or raise InvalidInput."""
    return build(JobIn, args=[*args], params=_texts(params or {}), **fields)


def _texts(params: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items()}


def _path(project: str, job: str) -> tuple[str, str, str, str]:
    return ("projects", project, "jobs", job)
