"""Slurm by its command line: `sbatch`, `squeue`, `sacct`, `scancel`, here or on a login node.

Jobs are the person's own: each command runs as the Unix user that an administrator has linked with
the person, by `sudo -n -u USER` with a list of allowed commands, or as the user of the portal in a
pool for one person or team. A job has the unique name of its allocation, by which a lost answer is
found again, and is never requeued by Slurm: Slipway asks for another allocation instead.

Formats: https://slurm.schedmd.com/squeue.html, https://slurm.schedmd.com/sacct.html
"""

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from portal.compute.adapters.engines.slurm.arrays import (
    expanded,
    handles_of,
    is_element,
    is_stale,
    master_of,
    masters_of,
    spec_of,
)
from portal.compute.adapters.engines.slurm.reports import (
    HANDLE,
    JobLine,
    cancelled_while_waiting,
    full_reason,
    is_over,
    is_temporary,
    report_on,
)
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
    EngineFull,
    EngineRefused,
    Owner,
    Usage,
    submit_each,
)

_PATIENCE_S: Final = 20.0
# Stands between the columns of squeue and sacct. Reasons may contain spaces and commas.
_SEPARATOR: Final = "|"


class SlurmEngine:
    """One partition of a Slurm cluster, through its commands."""

    def __init__(
        self, settings: SlurmSettings, *, url: str, python: str, task_python: str = ""
    ) -> None:
        self._settings = settings
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
            with suppress(EngineRefused, EngineFull):
                array = self._submit(batch, left)
                return answers | {order.name: f"{array}_{order.place}" for order in left}
        return answers | submit_each(lambda order: self._submit(order.name, [order]), left)

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs: those that wait or run by squeue, the others by sacct."""
        reports = self._queued(handles)
        missing = [handle for handle in handles if handle not in reports]
        return reports | (self._ended(missing, set(map(master_of, reports))) if missing else {})

    def stop(self, handle: str, *, account: str = "") -> None:
        """Cancel a job. Its agents get SIGTERM, and SIGKILL after the KillWait of the site."""
        done = self._run("scancel", handle, account=account)
        if done.returncode and "Invalid job id" not in done.stderr:
            raise EngineAway(_last_line(done.stderr))

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return the users who submitted jobs of this name: those of now, and by the accounting."""
        done = self._run("squeue", "--noheader", f"--name={name}", "--states=all", "--format=%U|%u")
        if done.returncode:
            raise EngineAway(_last_line(done.stderr))
        ended = self._run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", "--allusers"),
            *(f"--name={name}", "--starttime=now-2days", "--format=UID,User"),
        )
        if ended.returncode and not _has_no_accounting(ended.stderr):
            raise EngineAway(_last_line(ended.stderr))
        lines = done.stdout.splitlines() + (
            ended.stdout.splitlines() if not ended.returncode else []
        )
        pairs = (line.strip().partition(_SEPARATOR) for line in lines)
        return frozenset(Owner(user, int(number)) for number, _, user in pairs)

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return what the accounting of the site has of ended jobs."""
        done = self._run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates"),
            *(f"--jobs={','.join(masters_of(handles))}", "--starttime=now-30days"),
            "--format=JobID,State,End,ElapsedRaw,CPUTimeRAW,AllocNodes,AllocTRES",
        )
        if done.returncode:
            if _has_no_accounting(done.stderr):
                return {}
            raise EngineAway(_last_line(done.stderr))
        usages = _usages(done.stdout)
        return {handle: usages[handle] for handle in handles if handle in usages}

    # Orders

    def _submit(self, name: str, orders: Sequence[AllocationOrder]) -> str:
        """Submit one order, or an array, and return its number.

        Raises EngineRefused, EngineFull, EngineAway.
        """
        done = self._run(
            *("sbatch", *self._options(name, orders)),
            script=self._script(orders),
            account=orders[0].account,
        )
        if done.returncode:
            text = _last_line(done.stderr)
            if full := full_reason(done.stderr):
                raise EngineFull(full)
            if is_temporary(text):
                raise EngineAway(text)
            raise EngineRefused(text)
        number = done.stdout.strip().partition(";")[0]
        if not number.isdecimal():
            raise EngineAway(f"sbatch printed {done.stdout[:100]!r} instead of the number of a job")
        return number

    def _options(self, name: str, orders: Sequence[AllocationOrder]) -> list[str]:
        settings, order = self._settings, orders[0]
        options = {
            "job-name": name,
            "comment": comment_of_all(orders),
            "array": spec_of(orders) if len(orders) > 1 else "",
            "nodes": f"{order.tasks}",
            "ntasks": f"{order.tasks}",
            "ntasks-per-node": "1",
            "cpus-per-task": f"{cpus_of(order)}",
            "mem": f"{memory_mib_of(order)}M",
            "time": f"{minutes_of(order) or ''}",
            "gres": gres_of(order),
            "partition": settings.partition,
            "account": settings.account,
            "qos": settings.qos,
            "constraint": settings.constraint,
            # The signal goes to the steps, so to the agents, this long before the time limit.
            "signal": f"TERM@{int(order.grace.total_seconds())}",
            "output": "/dev/null",
        }
        given = [f"--{name}={value}" for name, value in options.items() if value]
        return ["--parsable", "--no-requeue", "--export=NIL", *given]

    def _script(self, orders: Sequence[AllocationOrder]) -> str:
        return batch_script(
            orders,
            self._settings,
            url=self._url,
            python=self._python,
            task_python=self._task_python,
        )

    def _find(self, names: Sequence[str]) -> list[JobLine]:
        """Return the jobs with these names, and the elements of arrays."""
        choice = f"--name={','.join(names)}"
        lines = self._lines(*_SQUEUE, choice)
        if {line.name for line in lines} != set(names):
            # Jobs of which squeue knows no more, without accounting none.
            lines += self._accounted(choice) or []
        return lines

    # Reports

    def _queued(self, handles: Sequence[str]) -> dict[str, AllocationReport]:
        lines = self._lines(*_SQUEUE, f"--jobs={','.join(masters_of(handles))}")
        now = datetime.now(UTC)
        return {line.handle: report_on(_with_limit(line, now)) for line in lines}

    def _ended(self, handles: Sequence[str], queued: Set[str]) -> dict[str, AllocationReport]:
        """Report on jobs that squeue does not know. `queued` are the arrays that it knows."""
        lines = self._accounted(f"--jobs={','.join(masters_of(handles))}") or []
        reports = {line.handle: report_on(line) for line in lines if not is_stale(line)}
        arrays = {master_of(line.handle) for line in lines} | queued
        for handle in handles:
            if handle not in reports and is_element(handle) and master_of(handle) in arrays:
                reports[handle] = cancelled_while_waiting()
        return reports

    def _accounted(self, choice: str) -> list[JobLine] | None:
        """Ask the accounting. None where the site has none."""
        done = self._run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", choice),
            *("--starttime=now-30days", "--format=JobID,State,Reason,Elapsed,Timelimit,JobName"),
        )
        if done.returncode:
            if _has_no_accounting(done.stderr):
                return None
            raise EngineAway(_last_line(done.stderr))
        return _parsed(done.stdout)

    def _lines(self, *command: str) -> list[JobLine]:
        done = self._run(*command)
        if done.returncode:
            if "Invalid job id" in done.stderr:
                return []
            raise EngineAway(_last_line(done.stderr))
        return _parsed("\n".join(map(_queued_line, done.stdout.splitlines())))

    def _run(
        self, *command: str, script: str = "", account: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm as a person's account or the user of the pool.

        Raises EngineAway.
        """
        settings = self._settings
        words = list(command)
        if user := account or settings.user:
            words = ["sudo", "-n", "-u", user, "--", *words]
        if settings.slurm_conf:
            # Before sudo, which then has to allow nothing but the command itself.
            words = ["env", f"SLURM_CONF={settings.slurm_conf}", *words]
        if settings.login:
            words = ["ssh", "-o", "BatchMode=yes", settings.login, "--", shlex.join(words)]
        try:
            return subprocess.run(
                words,
                input=script,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise EngineAway(f"the portal's machine has no command {words[0]}") from error
        except subprocess.TimeoutExpired as error:
            raise EngineAway(f"{command[0]} did not answer within {_PATIENCE_S:g} s") from error


# Elements of arrays on lines of their own. The third column is the index, or "N/A".
_SQUEUE: Final = (
    *("squeue", "--noheader", "--array", "--states=all"),
    f"--format={_SEPARATOR.join(('%F', '%K', '%T', '%r', '%M', '%l', '%j'))}",
)


def _queued_line(line: str) -> str:
    """Return a line of squeue as sacct writes them, with one column for job and element."""
    number, _, rest = line.strip().partition(_SEPARATOR)
    index, _, rest = rest.partition(_SEPARATOR)
    return f"{number}{'' if index == 'N/A' else f'_{index}'}{_SEPARATOR}{rest}"


def _parsed(text: str) -> list[JobLine]:
    lines = []
    for line in text.splitlines():
        column, _, rest = line.strip().partition(_SEPARATOR)
        state, _, rest = rest.partition(_SEPARATOR)
        reason, _, rest = rest.partition(_SEPARATOR)
        elapsed, _, rest = rest.partition(_SEPARATOR)
        limit, _, name = rest.partition(_SEPARATOR)
        # sacct writes "CANCELLED by 1001".
        state = state.partition(" ")[0].rstrip("+")
        times = _seconds(elapsed), _seconds(limit)
        lines += [
            JobLine(handle, state, reason.strip(), *times, name=name)
            for handle in expanded(column)
            if HANDLE.fullmatch(handle)
        ]
    return lines


def _with_limit(line: JobLine, now: datetime) -> JobLine:
    """Add when a job that runs reaches its time limit, by the clock of this machine."""
    if not line.limit_s:
        return line
    return replace(line, ends_at=now + timedelta(seconds=line.limit_s - line.elapsed_s))


def _seconds(text: str) -> int:
    """Return the seconds of `[days-]hours:minutes:seconds` or `minutes:seconds`, 0 for a word."""
    days, _, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")):
        return 0
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + int(days or "0") * 86_400


def _usages(text: str) -> dict[str, Usage]:
    usages = {}
    for line in text.splitlines():
        handle, state, end, *rest = line.strip().split(_SEPARATOR)
        has_ended = is_over(state.partition(" ")[0]) and end != "Unknown"
        if not has_ended or not HANDLE.fullmatch(handle):
            continue
        elapsed, cpu, machines, resources = rest
        if elapsed.isdecimal() and cpu.isdecimal() and machines.isdecimal():
            usages[handle] = Usage(int(elapsed), int(machines), int(cpu), resources[:300])
    return usages


def _has_no_accounting(error: str) -> bool:
    return "accounting storage is disabled" in error.lower()


def _last_line(text: str) -> str:
    """Return the error of a command without the name of the program."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^\w+: (error: )?", "", lines[-1]) if lines else "it failed without a message"
