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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from portal.compute.adapters.engines.slurm.reports import (
    HANDLE,
    JobLine,
    is_over,
    is_temporary,
    report_on,
)
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
        if handle := self._find(order.name):
            return handle
        done = self._run(
            "sbatch", *self._options(order), script=self._script(order), account=order.account
        )
        if done.returncode:
            text = _last_line(done.stderr)
            if is_temporary(text):
                raise EngineAway(text)
            raise EngineRefused(text)
        handle = done.stdout.strip().partition(";")[0]
        if not HANDLE.fullmatch(handle):
            raise EngineAway(f"sbatch printed {done.stdout[:100]!r} instead of the number of a job")
        return handle

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs: those that wait or run by squeue, the others by sacct."""
        reports = self._queued(handles)
        missing = [handle for handle in handles if handle not in reports]
        return reports | (self._ended(missing) if missing else {})

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
            *(f"--jobs={','.join(handles)}", "--starttime=now-30days"),
            "--format=JobIDRaw,State,End,ElapsedRaw,CPUTimeRAW,AllocNodes,AllocTRES",
        )
        if done.returncode:
            if _has_no_accounting(done.stderr):
                return {}
            raise EngineAway(_last_line(done.stderr))
        return _usages(done.stdout)

    # Orders

    def _options(self, order: AllocationOrder) -> list[str]:
        settings = self._settings
        options = {
            "job-name": order.name,
            "comment": comment_of(order),
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

    def _script(self, order: AllocationOrder) -> str:
        return batch_script(
            order,
            self._settings,
            url=self._url,
            python=self._python,
            task_python=self._task_python,
        )

    def _find(self, name: str) -> str:
        """Return the number of the job with this name, "" if Slurm knows none."""
        lines = self._lines("squeue", "--noheader", f"--name={name}", "--states=all", _FORMAT)
        if not lines:
            # Jobs of which squeue knows no more, without accounting none.
            lines = self._accounted(f"--name={name}")
        return lines[0].handle if lines else ""

    # Reports

    def _queued(self, handles: Sequence[str]) -> dict[str, AllocationReport]:
        numbers = ",".join(handles)
        lines = self._lines("squeue", "--noheader", f"--jobs={numbers}", "--states=all", _FORMAT)
        now = datetime.now(UTC)
        return {line.handle: report_on(_with_limit(line, now)) for line in lines}

    def _ended(self, handles: Iterable[str]) -> dict[str, AllocationReport]:
        lines = self._accounted(f"--jobs={','.join(handles)}")
        return {line.handle: report_on(line) for line in lines}

    def _accounted(self, choice: str) -> list[JobLine]:
        """Ask the accounting, where the site has one."""
        done = self._run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", choice),
            *("--starttime=now-30days", "--format=JobIDRaw,State,Reason,Elapsed,Timelimit"),
        )
        if done.returncode:
            if _has_no_accounting(done.stderr):
                return []
            raise EngineAway(_last_line(done.stderr))
        return _parsed(done.stdout)

    def _lines(self, *command: str) -> list[JobLine]:
        done = self._run(*command)
        if done.returncode:
            if "Invalid job id" in done.stderr:
                return []
            raise EngineAway(_last_line(done.stderr))
        return _parsed(done.stdout)

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


_FORMAT: Final = f"--format={_SEPARATOR.join(('%A', '%T', '%r', '%M', '%l'))}"


def _parsed(text: str) -> list[JobLine]:
    lines = []
    for line in text.splitlines():
        handle, _, rest = line.strip().partition(_SEPARATOR)
        state, _, rest = rest.partition(_SEPARATOR)
        reason, _, times = rest.partition(_SEPARATOR)
        elapsed, _, limit = times.partition(_SEPARATOR)
        if HANDLE.fullmatch(handle):
            # sacct writes "CANCELLED by 1001".
            state = state.partition(" ")[0].rstrip("+")
            lines.append(JobLine(handle, state, reason.strip(), _seconds(elapsed), _seconds(limit)))
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
