"""Slurm by slurmrestd, with tokens for the account to which a job belongs.

Options of a job have the names of v0.0.38. `no_requeue` is not in its specification, but counts;
`requeue` is there, and does not. Cancelling is what scancel does: SIGTERM, then SIGKILL after the
KillWait of the site.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from portal.compute.adapters.engines.slurm.arrays import (
    handles_of,
    indices_of,
    is_element,
    is_shortened,
    is_stale,
    master_of,
    masters_of,
    spec_of,
)
from portal.compute.adapters.engines.slurm.reports import (
    JobLine,
    cancelled_while_waiting,
    is_over,
    is_temporary,
    report_on,
)
from portal.compute.adapters.engines.slurm.rest_api import UNKNOWN_JOB, RestProblem, SlurmRestApi
from portal.compute.adapters.engines.slurm.script import (
    batch_script,
    comment_of_all,
    cpus_of,
    gres_of,
    memory_mib_of,
    minutes_of,
)
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import (
    AllocationOrder,
    AllocationReport,
    Answer,
    EngineAway,
    EngineRefused,
    Owner,
    Usage,
    submit_each,
)

# One request lists all jobs of the cluster, so a few are asked for one by one.
_FEW: Final = 20
# Names in the address of a request.
_NAMES_AT_ONCE: Final = 40


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
        lines = self._find([order.name])
        return lines[0].handle if lines else self._submit(order.name, [order])

    def submit_many(self, batch: str, orders: Sequence[AllocationOrder]) -> Mapping[str, Answer]:
        """Submit an array, or batch jobs where Slurm refuses that. Raises EngineAway."""
        lines = self._find([batch, *(order.name for order in orders)])
        answers: dict[str, Answer] = dict(handles_of(batch, orders, lines))
        left = [order for order in orders if order.name not in answers]
        if len(left) > 1:
            with suppress(EngineRefused):
                array = self._submit(batch, left)
                return answers | {order.name: f"{array}_{order.place}" for order in left}
        return answers | submit_each(lambda order: self._submit(order.name, [order]), left)

    def _find(self, names: Sequence[str]) -> list[JobLine]:
        """Return the jobs with these names, and the elements of arrays."""
        lines = [line for line in _lines_of(self._jobs()) if line.name in names]
        for first in range(0, len(names), _NAMES_AT_ONCE):
            query = {"job_name": ",".join(names[first : first + _NAMES_AT_ONCE])}
            lines += _accounted_lines(self._accounted(query))
        return [line for line in lines if line.name in names]

    def _submit(self, name: str, orders: Sequence[AllocationOrder]) -> str:
        script = batch_script(
            orders,
            self._settings,
            url=self._url,
            python=self._python,
            task_python=self._task_python,
        )
        body = {"script": script, "job": self._options(name, orders)}
        account = orders[0].account or self._settings.user
        try:
            answer = self._api.call("POST", "job/submit", account=account, body=body)
        except RestProblem as problem:
            answer, text = problem.content, str(problem)
            # A job that waits for a node that is down is there, beside the error.
            if not answer.get("job_id"):
                raise EngineAway(text) if is_temporary(text) else EngineRefused(text) from problem
        number = str(answer.get("job_id"))
        if not number.isdecimal():
            raise EngineAway(f"slurmrestd answered {number[:100]!r} instead of the number of a job")
        return number

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs: those that slurmctld knows, the others by the accounting."""
        masters = masters_of(handles)
        jobs = list(self._jobs() if len(masters) > _FEW else self._jobs_one_by_one(masters))
        known = {line.handle: report_on(line) for line in _lines_of(jobs)}
        # Elements that wait are a list, which is shortened where it is long.
        waiting = {
            str(job["array_job_id"]): JobLine("", "PENDING", str(job["state_reason"]))
            for job in jobs
            if is_shortened(str(job.get("array_task_string") or ""))
        }
        arrays = set(map(master_of, known))
        reports = {handle: known[handle] for handle in handles if handle in known}
        missing = [handle for handle in handles if handle not in reports]
        for master in masters_of(missing):
            lines = _accounted_lines(self._accounted({}, master))
            accounted = {line.handle: report_on(line) for line in lines if not is_stale(line)}
            for handle in missing:
                if handle in accounted:
                    reports[handle] = accounted[handle]
                elif is_element(handle) and master_of(handle) == master:
                    if master in waiting:
                        reports[handle] = report_on(waiting[master])
                    elif lines or master in arrays:
                        reports[handle] = cancelled_while_waiting()
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
        for master in masters_of(handles):
            for job in self._accounted({}, master):
                handle = _handle_of(job)
                is_ended = is_over(_state_of((job.get("state") or {}).get("current")))
                if handle in handles and is_ended:
                    usages[handle] = _usage_of(job)
        return usages

    def _options(self, name: str, orders: Sequence[AllocationOrder]) -> dict[str, Any]:
        settings, order = self._settings, orders[0]
        options: dict[str, Any] = {
            "name": name,
            "comment": comment_of_all(orders),
            "array": spec_of(orders) if len(orders) > 1 else "",
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


def _lines_of(jobs: Iterable[dict[str, Any]]) -> list[JobLine]:
    """Return jobs of slurmctld. Elements of an array that wait are one job with a list of them."""
    lines = []
    for job in jobs:
        array, element = job.get("array_job_id"), job.get("array_task_id")
        handles = [str(job["job_id"])]
        if array:
            waiting = indices_of(str(job.get("array_task_string") or ""))
            indices = waiting if element is None or waiting else [element]
            handles = [f"{array}_{index}" for index in indices]
        lines += [
            JobLine(
                handle,
                _state_of(job["job_state"]),
                str(job["state_reason"]),
                int(job.get("end_time") or 0) - int(job.get("start_time") or 0),
                int(job.get("time_limit") or 0) * 60,
                name=str(job.get("name")),
                ends_at=_limit_of(job),
            )
            for handle in handles
        ]
    return lines


def _accounted_lines(jobs: Iterable[dict[str, Any]]) -> list[JobLine]:
    """Return jobs of the accounting."""
    lines = []
    for job in jobs:
        state, times = job.get("state") or {}, job.get("time") or {}
        array = job.get("array") or {}
        waiting = indices_of(str(array.get("task") or ""))
        handles = [f"{array['job_id']}_{index}" for index in waiting] or [_handle_of(job)]
        lines += [
            JobLine(
                handle,
                _state_of(state.get("current")),
                str(state.get("reason")),
                int(times.get("elapsed") or 0),
                int(times.get("limit") or 0) * 60,
                name=str(job.get("name")),
            )
            for handle in handles
        ]
    return lines


def _handle_of(job: dict[str, Any]) -> str:
    """Return the handle of a job of the accounting."""
    array = job.get("array") or {}
    if array.get("job_id") and array.get("task_id") is not None:
        return f"{array['job_id']}_{array['task_id']}"
    return str(job.get("job_id"))


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
