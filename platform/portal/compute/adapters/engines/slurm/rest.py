"""Slurm by slurmrestd, with tokens for the account to which a job belongs.

Options of a job have the names of v0.0.38. `no_requeue` is not in its specification, but counts;
`requeue` is there, and does not. Cancelling is what scancel does: SIGTERM, then SIGKILL after the
KillWait of the site.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from portal.compute.adapters.engines.slurm.reports import (
    HANDLE,
    JobLine,
    is_over,
    is_temporary,
    report_on,
)
from portal.compute.adapters.engines.slurm.rest_api import UNKNOWN_JOB, RestProblem, SlurmRestApi
from portal.compute.adapters.engines.slurm.script import (
    batch_script,
    comment_of,
    cpus_of,
    gres_of,
    memory_mib_of,
    minutes_of,
)
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import (
    AllocationOrder,
    AllocationReport,
    EngineAway,
    EngineRefused,
    Owner,
    Usage,
)

# One request lists all jobs of the cluster, so a few are asked for one by one.
_FEW: Final = 20


class SlurmRestEngine:
    """One partition of a Slurm cluster, through slurmrestd."""

    def __init__(
        self,
        settings: SlurmSettings,
        api: SlurmRestApi,
        *,
        url: str,
        python: str,
        task_python: str = "",
    ) -> None:
        self._settings = settings
        self._api = api
        self._url = url
        self._python = python
        self._task_python = task_python

    def submit(self, order: AllocationOrder) -> str:
        """Submit a batch job, unless one of this name exists. Raises EngineRefused, EngineAway."""
        for job in (*self._jobs(), *self._accounted({"job_name": order.name})):
            if job.get("name") == order.name:
                return str(job["job_id"])
        script = batch_script(
            order,
            self._settings,
            url=self._url,
            python=self._python,
            task_python=self._task_python,
        )
        body = {"script": script, "job": self._options(order)}
        account = order.account or self._settings.user
        try:
            answer = self._api.call("POST", "job/submit", account=account, body=body)
        except RestProblem as problem:
            answer, text = problem.content, str(problem)
            # A job that waits for a node that is down is there, beside the error.
            if not answer.get("job_id"):
                raise EngineAway(text) if is_temporary(text) else EngineRefused(text) from problem
        handle = str(answer.get("job_id"))
        if not HANDLE.fullmatch(handle):
            raise EngineAway(f"slurmrestd answered {handle[:100]!r} instead of the number of a job")
        return handle

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs: those that slurmctld knows, the others by the accounting."""
        jobs = self._jobs() if len(handles) > _FEW else self._jobs_one_by_one(handles)
        lines = [
            JobLine(
                str(job["job_id"]),
                _state_of(job["job_state"]),
                str(job["state_reason"]),
                int(job.get("end_time") or 0) - int(job.get("start_time") or 0),
                int(job.get("time_limit") or 0) * 60,
                _limit_of(job),
            )
            for job in jobs
        ]
        reports = {line.handle: report_on(line) for line in lines if line.handle in set(handles)}
        for handle in (handle for handle in handles if handle not in reports):
            for job in self._accounted({}, handle):
                state, times = job.get("state") or {}, job.get("time") or {}
                line = JobLine(
                    handle,
                    _state_of(state.get("current")),
                    str(state.get("reason")),
                    int(times.get("elapsed") or 0),
                    int(times.get("limit") or 0) * 60,
                )
                reports[handle] = report_on(line)
        return reports

    def stop(self, handle: str, *, account: str = "") -> None:
        """Cancel a job. Its agents get SIGTERM, and SIGKILL after the KillWait of the site."""
        try:
            self._api.call("DELETE", f"job/{handle}", account=account or self._settings.user)
        except RestProblem as problem:
            if problem.number != UNKNOWN_JOB:
                raise EngineAway(str(problem)) from problem

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return the users who submitted jobs of this name, once slurmctld knows one."""
        owners = {
            Owner(str(job["user_name"]), int(job["user_id"]))
            for job in self._jobs()
            if job.get("name") == name
        }
        if owners:
            # The accounting has no numbers. Another name is another owner whatever its number.
            names = {owner.name for owner in owners}
            ended = {str(job.get("user")) for job in self._accounted({"job_name": name})}
            owners |= {Owner(other, 0) for other in ended - names}
        return frozenset(owners)

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return what the accounting of the site has of ended jobs."""
        usages = {}
        for handle in handles:
            for job in self._accounted({}, handle):
                if is_over(_state_of((job.get("state") or {}).get("current"))):
                    usages[handle] = _usage_of(job)
        return usages

    def _options(self, order: AllocationOrder) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            "name": order.name,
            "comment": comment_of(order),
            "nodes": [order.tasks, order.tasks],
            "tasks": order.tasks,
            "tasks_per_node": 1,
            "cpus_per_task": cpus_of(order),
            "memory_per_node": memory_mib_of(order),
            "time_limit": minutes_of(order),
            "gres": gres_of(order),
            "partition": settings.partition,
            "account": settings.account,
            "qos": settings.qos,
            "constraints": settings.constraint,
            # The signal goes to the steps, so to the agents, this long before the time limit.
            "signal": f"TERM@{int(order.grace.total_seconds())}",
            "no_requeue": True,
            "standard_output": "/dev/null",
            "current_working_directory": "/",
            "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        }
        return {name: value for name, value in options.items() if value}

    def _jobs(self) -> Iterable[dict[str, Any]]:
        """Return all jobs that slurmctld knows."""
        return self._read("jobs")

    def _jobs_one_by_one(self, handles: Sequence[str]) -> Iterable[dict[str, Any]]:
        for handle in handles:
            yield from self._read(f"job/{handle}")

    def _read(self, path: str) -> list[dict[str, Any]]:
        try:
            jobs: list[dict[str, Any]] = self._api.call(
                "GET", path, account=self._settings.user
            ).get("jobs", [])
        except RestProblem as problem:
            if problem.number == UNKNOWN_JOB:
                return []
            raise EngineAway(str(problem)) from problem
        return jobs

    def _accounted(self, query: dict[str, str], handle: str = "") -> list[dict[str, Any]]:
        """Return jobs by the accounting of the site."""
        path = f"job/{handle}" if handle else "jobs"
        try:
            answer = self._api.call(
                "GET", path, account=self._settings.user, query=query, part="slurmdb"
            )
        except RestProblem as problem:
            raise EngineAway(f"the accounting of Slurm: {problem}") from problem
        jobs: list[dict[str, Any]] = answer.get("jobs", [])
        return jobs


def _state_of(value: Any) -> str:
    """Return the state of a job. Newer versions list it with its flags."""
    return str(value[0] if isinstance(value, list) and value else value)


def _limit_of(job: dict[str, Any]) -> datetime | None:
    """Return when a job reaches its time limit: what slurmctld expects as the end of one that runs.

    None for a job without a limit.
    """
    if not job.get("time_limit") or not job.get("end_time"):
        return None
    return datetime.fromtimestamp(int(job["end_time"]), UTC)


def _usage_of(job: dict[str, Any]) -> Usage:
    allocated = (job.get("tres") or {}).get("allocated") or []
    counts = {str(part.get("type")): int(part.get("count") or 0) for part in allocated}
    elapsed_s = int((job.get("time") or {}).get("elapsed") or 0)
    resources = ",".join(
        f"{part.get('type')}{'/' if part.get('name') else ''}{part.get('name') or ''}"
        f"={part.get('count')}"
        for part in allocated
    )
    return Usage(
        elapsed_s=elapsed_s,
        # slurmrestd has `allocation_nodes` as well, and says 0 for some jobs.
        machines=counts.get("node", 0),
        cpu_s=elapsed_s * counts.get("cpu", 0),
        resources=resources[:300],
    )
