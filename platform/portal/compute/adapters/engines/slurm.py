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
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portal.compute.adapters.engines.agent_command import ROOT, agent_argv, agent_variables
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    EndCause,
    Engine,
    EngineAway,
    EngineRefused,
    Owner,
    Usage,
)
from portal.core.errors import InvalidInput

_PATIENCE_S: Final = 20.0
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._:,=-]{0,99}"
_USER: Final = r"[a-z_][a-z0-9_-]{0,31}"
_PATH: Final = r"/[A-Za-z0-9._/+-]{0,500}"
_HANDLE: Final = re.compile(r"[0-9]{1,18}")
# Stands between the columns of squeue and sacct. Reasons may contain spaces and commas.
_SEPARATOR: Final = "|"

_WAITING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_GRANTED: Final = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT"})
_CAUSES: Final[Mapping[str, EndCause]] = {
    "COMPLETED": EndCause.FINISHED,
    "CANCELLED": EndCause.CANCELLED,
    "PREEMPTED": EndCause.PREEMPTED,
    "TIMEOUT": EndCause.TIME_LIMIT,
    "DEADLINE": EndCause.TIME_LIMIT,
    "NODE_FAIL": EndCause.NODE_FAILED,
    "BOOT_FAIL": EndCause.NODE_FAILED,
    "REVOKED": EndCause.NODE_FAILED,
    "OUT_OF_MEMORY": EndCause.OUT_OF_MEMORY,
    "FAILED": EndCause.FAILED,
}
# Meaning of Slurm's reasons for the person who waits:
# https://slurm.schedmd.com/job_reason_codes.html
_REASONS: Final[Mapping[str, str]] = {
    "Priority": "jobs with a higher priority are ahead",
    "Resources": "it is next, and waits until enough is free",
    "QOSMaxJobsPerUserLimit": "its owner runs as many jobs as the QoS allows",
    "AssocGrpCpuLimit": "its account uses as many CPUs as it may at once",
    "AssocGrpCPUMinutesLimit": "its account has used up its CPU time",
    "AssocGrpGRES": "its account uses as many GPUs as it may at once",
    "AssocMaxJobsLimit": "its owner runs as many jobs as the account allows",
    "PartitionTimeLimit": "its time limit is above that of the partition, so it never starts",
    "PartitionNodeLimit": "it needs more nodes than the partition allows, so it never starts",
    "PartitionDown": "the partition is down",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "BeginTime": "Slurm waits before it starts it again",
    "Dependency": "it waits for another job",
    "JobHeldAdmin": "an administrator of Slurm holds it",
    "JobHeldUser": "its owner holds it in Slurm",
    "Reservation": "it waits for its reservation",
}


class SlurmSettings(BaseModel):
    """Settings of a pool. `folder` and `python` are on the compute nodes.

    Jobs belong to the Unix user `user` (empty: the portal's own), or with `as_person` to the person
    who submits them.
    """

    model_config = ConfigDict(extra="forbid")

    portal_url: str = Field(default="", pattern=r"^(https?://[^\s]{1,200})?$")
    partition: str = Field(default="", pattern=f"^({_WORD})?$")
    account: str = Field(default="", pattern=f"^({_WORD})?$")
    qos: str = Field(default="", pattern=f"^({_WORD})?$")
    constraint: str = Field(default="", pattern=r"^[A-Za-z0-9._&|*\[\]()-]{0,100}$")
    user: str = Field(default="", pattern=f"^({_USER})?$")
    as_person: bool = False
    folder: str = Field(default="~/.slipway/nodes", pattern=rf"^(~{_PATH}|{_PATH})$")
    python: str = Field(default="", pattern=f"^({_PATH})?$")
    login: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._@-]{0,200})?$")
    slurm_conf: str = Field(default="", pattern=f"^({_PATH})?$")


class SlurmEngineKind:
    """Pools of Slurm partitions."""

    label = "Slurm"
    runs_servers = True

    def __init__(self, url: str, python: str, task_python: str = "") -> None:
        """Agents reach the portal at `url`, unless the pool says otherwise."""
        self._url = url
        self._python = python
        self._task_python = task_python

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        try:
            return SlurmSettings.model_validate(dict(settings)).model_dump(exclude_defaults=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            if first["type"] == "extra_forbidden":
                message = f"A Slurm pool has no setting {name}."
            else:
                message = f"The setting {name} is not valid: {first['msg']}."
            raise InvalidInput(
                message,
                field="settings",
                next_step=f"Settings: {', '.join(SlurmSettings.model_fields)}.",
            ) from error

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return True if jobs belong to the person who submits them."""
        return bool(settings.get("as_person"))

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return the command to run on a login node."""
        checked = SlurmSettings.model_validate(dict(settings))
        choices = {
            "partition": checked.partition,
            "account": checked.account,
            "qos": checked.qos,
        }
        options = [f"--{option}={value}" for option, value in choices.items() if value]
        job = ("--time=1", "--output=/dev/null", "--wrap=true")
        return shlex.join(["sbatch", f"--job-name={name}", *options, *job])

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool."""
        checked = SlurmSettings.model_validate(dict(settings))
        return SlurmEngine(
            checked,
            url=checked.portal_url or self._url,
            python=checked.python or self._python,
            task_python=self._task_python,
        )


@dataclass(frozen=True)
class _JobLine:
    """A line of squeue or sacct."""

    handle: str
    state: str
    reason: str


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
            if _is_temporary(text):
                raise EngineAway(text)
            raise EngineRefused(text)
        handle = done.stdout.strip().partition(";")[0]
        if not _HANDLE.fullmatch(handle):
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
        amount, settings = order.amount, self._settings
        # Without a time limit the partition's own counts.
        minutes = -(-int(order.time_limit.total_seconds()) // 60) if order.time_limit else 0
        options = {
            "job-name": order.name,
            "comment": re.sub(r"[^\w .:/-]", "_", order.label)[:100],
            "nodes": f"{order.tasks}",
            "ntasks": f"{order.tasks}",
            "ntasks-per-node": "1",
            "cpus-per-task": f"{max(1, -(-amount.cpu_millis // 1000))}",
            "mem": f"{max(1, amount.memory_bytes // 2**20)}M",
            "time": f"{minutes or ''}",
            "gres": _gres(order),
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
        """Return the batch script: one agent on each node.

        Its owner and the administrators of Slurm can read the tokens in it. Each works once.
        """
        folder = self._settings.folder
        shell_folder = shlex.quote(folder)
        if folder.startswith("~"):
            shell_folder = f'"$HOME"{shlex.quote(folder[1:])}'
        argv = [*agent_argv(order, folder="FOLDER", python=self._python), "--url", self._url]
        if self._task_python:
            argv += ["--python", self._task_python]
        words = (shell_folder if word == "FOLDER" else shlex.quote(word) for word in argv)
        variables = agent_variables(order)
        if not self._settings.python:
            # The nodes share the folder of this portal's own code.
            variables["PYTHONPATH"] = f"{ROOT / 'platform'}:{ROOT}"
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        return "\n".join(
            (
                "#!/bin/sh",
                # The job starts without variables of the submitter, whose shell may be anything.
                "export PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8",
                'HOME=$(getent passwd "$(id -u)" | cut -d: -f6)',
                "export HOME",
                *exports,
                f"mkdir -p {shell_folder}",
                f"log={shell_folder}/{shlex.quote(order.name)}.log",
                f'srun --export=ALL --kill-on-bad-exit=1 {" ".join(words)} >"$log" 2>&1',
                # The output of the agents stays where one of them failed.
                'status=$?; [ "$status" -ne 0 ] || rm -f "$log"; exit "$status"',
                "",
            )
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
        return {line.handle: _report(line) for line in lines}

    def _ended(self, handles: Iterable[str]) -> dict[str, AllocationReport]:
        lines = self._accounted(f"--jobs={','.join(handles)}")
        return {line.handle: _report(line) for line in lines}

    def _accounted(self, choice: str) -> list[_JobLine]:
        """Ask the accounting, where the site has one."""
        done = self._run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", choice),
            *("--starttime=now-30days", "--format=JobIDRaw,State,Reason"),
        )
        if done.returncode:
            if _has_no_accounting(done.stderr):
                return []
            raise EngineAway(_last_line(done.stderr))
        return _parsed(done.stdout)

    def _lines(self, *command: str) -> list[_JobLine]:
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


_FORMAT: Final = f"--format=%A{_SEPARATOR}%T{_SEPARATOR}%r"


def _gres(order: AllocationOrder) -> str:
    if not order.amount.gpus:
        return ""
    model = f"{order.gpu_model.lower()}:" if re.fullmatch(r"[\w.-]+", order.gpu_model) else ""
    return f"gpu:{model}{order.amount.gpus}"


def _parsed(text: str) -> list[_JobLine]:
    lines = []
    for line in text.splitlines():
        handle, _, rest = line.strip().partition(_SEPARATOR)
        state, _, reason = rest.partition(_SEPARATOR)
        if _HANDLE.fullmatch(handle):
            # sacct writes "CANCELLED by 1001".
            lines.append(_JobLine(handle, state.partition(" ")[0].rstrip("+"), reason.strip()))
    return lines


def _report(line: _JobLine) -> AllocationReport:
    if line.state in _WAITING:
        meaning = _REASONS.get(line.reason, "")
        detail = f"{line.reason} ({meaning})" if meaning else line.reason
        return AllocationReport(AllocationPhase.WAITING, "" if detail == "None" else detail)
    if line.state in _GRANTED:
        return AllocationReport(AllocationPhase.GRANTED)
    cause = _CAUSES.get(line.state, EndCause.FAILED)
    detail = "" if line.reason in ("None", "") else line.reason
    return AllocationReport(AllocationPhase.ENDED, f"{line.state} {detail}".strip(), cause)


def _usages(text: str) -> dict[str, Usage]:
    usages = {}
    for line in text.splitlines():
        handle, state, end, *rest = line.strip().split(_SEPARATOR)
        has_ended = state.partition(" ")[0] not in _WAITING | _GRANTED and end != "Unknown"
        if not has_ended or not _HANDLE.fullmatch(handle):
            continue
        elapsed, cpu, machines, resources = rest
        if elapsed.isdecimal() and cpu.isdecimal() and machines.isdecimal():
            usages[handle] = Usage(int(elapsed), int(machines), int(cpu), resources[:300])
    return usages


_TEMPORARY: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "slurm_load_jobs error",
    "temporarily",
    "a password is required",
    "zero bytes were transmitted",
)


def _is_temporary(text: str) -> bool:
    return any(phrase in text.lower() for phrase in _TEMPORARY)


def _has_no_accounting(error: str) -> bool:
    return "accounting storage is disabled" in error.lower()


def _last_line(text: str) -> str:
    """Return the error of a command without the name of the program."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^\w+: (error: )?", "", lines[-1]) if lines else "it failed without a message"
