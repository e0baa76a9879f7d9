"""The helper of a person on a login node of Slurm: `slipway pool helper`.

It runs under the person's own login and token, and connects to the server only. It knows four
operations, and runs `sbatch`, `squeue`, `sacct` and `scancel` with arguments that it has checked
itself: a server cannot make it run another program. What a batch script does in its job is the
affair of the server, as with every job of Slipway.
"""

import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from slipway.schemas.base import forbidden_character
from slipway.schemas.pool_helpers import (
    HANDLE_PATTERN,
    HELPER_DEADLINE_S,
    MAX_HELPER_OUTPUT,
    CommandOutput,
    HelperAnswerIn,
    HelperOperation,
    HelperRequestOut,
    HelperStatus,
    HelperTakeOut,
    PoolHelperOut,
)
from slipway.schemas.truncation import shorten

# A command that takes longer counts as failed. Less than REQUEST_EXPIRES_S after the deadline.
_COMMAND_S: Final = 20.0
# The long poll, shorter than the time after which the server thinks that the helper is gone.
_WAIT_S: Final = 15.0
_MAX_SCRIPT: Final = 200_000
_MAX_HANDLES: Final = 1000
_NAME: Final = re.compile(r"sw-[a-z0-9]{1,60}|slipway-link-[0-9a-f]{24}")
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._:,=-]{0,99}"
_NUMBER: Final = r"[0-9]{1,9}"
# The options of sbatch that a request may have. The form of each is checked as a whole.
_OPTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "job-name": _NAME.pattern,
        "comment": r"[\w .:/-]{1,100}",
        "nodes": _NUMBER,
        "ntasks": _NUMBER,
        "ntasks-per-node": _NUMBER,
        "cpus-per-task": _NUMBER,
        "mem": r"[0-9]{1,12}M",
        "time": _NUMBER,
        "gres": r"gpu:([A-Za-z0-9_.-]{1,60}:)?[0-9]{1,4}",
        "partition": _WORD,
        "account": _WORD,
        "qos": _WORD,
        "constraint": r"[A-Za-z0-9._&|*\[\]()-]{1,100}",
        "signal": r"TERM@[0-9]{1,5}",
    }.items()
}
# Lines of a script that sbatch would read as further options.
_DIRECTIVE: Final = re.compile(r"^#\s*(SBATCH|PBS|BSUB)", re.MULTILINE | re.IGNORECASE)
_ACCOUNTING: Final = ("--noheader", "--parsable2", "--allocations", "--duplicates")
# As in the portal's `slurm.commands`, which reads the lines.
_QUEUE_COLUMNS: Final = "--format=%F|%K|%T|%r|%M|%l|%j"
_ENDED_COLUMNS: Final = "--format=JobID,State,Reason,Elapsed,Timelimit,JobName"
_USAGE_COLUMNS: Final = "--format=JobID,State,End,ElapsedRaw,CPUTimeRAW,AllocNodes,AllocTRES"


class Refusal(Exception):
    """A request that no helper executes. The text is for the person."""


class Away(Exception):
    """Slurm does not answer. The request may be repeated."""


class Portal(Protocol):
    """The part of `Client.pools` that a helper needs."""

    def helper(self, name: str, *, seen: int = 0, wait_s: float = 0.0) -> PoolHelperOut:
        """Wait for a change."""

    def take_request(self, name: str, *, helper: str) -> HelperTakeOut:
        """Take a request."""

    def answer_request(self, name: str, request_id: str, answer: HelperAnswerIn) -> None:
        """Answer a request."""


class SlurmHelper:
    """Executes requests, one at a time. `report` gets a line about each that changes something."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.id = secrets.token_hex(12)
        self._report = report
        self._environment = clean_environment(os.environ)

    def serve_once(self, portal: Portal, pool: str, seen: int) -> int:
        """Execute what waits, then wait for a change. Returns the version to wait for next.

        Raises the errors of `Client`, and Conflict for an answer that came too late.
        """
        while True:
            began = time.monotonic()
            request = portal.take_request(pool, helper=self.id).request
            if request is None:
                break
            portal.answer_request(pool, request.id, self.execute(request, began))
        return portal.helper(pool, seen=seen, wait_s=_WAIT_S).version

    def execute(self, request: HelperRequestOut, began: float) -> HelperAnswerIn:
        """Execute a request and return the answer, whatever happens.

        `began` is the monotonic time in seconds before the request was taken.
        """
        try:
            if request.operation == HelperOperation.SUBMIT:
                return self._submit(request, began)
            handles = checked_handles(request.handles)
            if request.operation == HelperOperation.LOOK:
                return self._look(handles)
            if request.operation == HelperOperation.CANCEL:
                return self._cancel(handles)
            if request.operation == HelperOperation.USAGE:
                return self._answer(sacct=self._account(handles, _USAGE_COLUMNS))
            raise Refusal(f"This helper knows no operation {request.operation[:40]!r}.")
        except Refusal as refusal:
            self._report(f"Refused a request of the server: {refusal}")
            return self._answer(HelperStatus.REFUSED, str(refusal))
        except Away as problem:
            return self._answer(HelperStatus.AWAY, str(problem))

    # Operations

    def _submit(self, request: HelperRequestOut, began: float) -> HelperAnswerIn:
        options = checked_options(request.options)
        check_script(request.script)
        name = options["job-name"]
        handle = self._find(name)
        if not handle:
            # Another helper gets the request when this one is late, so it must not submit then.
            if time.monotonic() - began > HELPER_DEADLINE_S:
                raise Away("Slurm answers slowly, so the helper has not submitted the job.")
            words = [f"--{option}={value}" for option, value in options.items()]
            fixed = ("--parsable", "--no-requeue", "--export=NIL", "--output=/dev/null")
            done = self._run("sbatch", *fixed, *words, script=request.script)
            if done.code:
                # The server knows which of these errors pass.
                return self._answer(HelperStatus.REFUSED, last_line(done.error))
            handle = done.output.strip().partition(";")[0]
            if not re.fullmatch(HANDLE_PATTERN, handle):
                raise Away(f"sbatch printed {handle[:100]!r} instead of the number of a job")
            self._report(f"Submitted job {handle} ({name}).")
        owner, number = self._owner(handle)
        return self._answer(handle=handle, owner=owner, owner_number=number)

    def _find(self, name: str) -> str:
        """Return the number of this person's job of a name, "" if Slurm knows none."""
        queued = self._run(
            "squeue", "--noheader", "--me", f"--name={name}", "--states=all", "--format=%A"
        )
        if queued.code:
            raise Away(last_line(queued.error))
        ended = CommandOutput(code=0)
        if not queued.output.strip():
            ended = self._run(
                "sacct",
                *_ACCOUNTING,
                f"--name={name}",
                f"--user={os.getuid()}",
                "--starttime=now-30days",
                "--format=JobID",
            )
            if ended.code and not has_no_accounting(ended):
                raise Away(last_line(ended.error))
        lines = queued.output.split() or ended.output.split()
        return next((line for line in lines if re.fullmatch(HANDLE_PATTERN, line)), "")

    def _owner(self, handle: str) -> tuple[str | None, int | None]:
        """Return the account and the number of the owner of a job, as Slurm says."""
        queued = self._run(
            "squeue", "--noheader", f"--jobs={handle}", "--states=all", "--format=%u|%U"
        )
        lines = queued.output.split() if not queued.code else []
        if not lines:
            ended = self._run("sacct", *_ACCOUNTING, f"--jobs={handle}", "--format=User,UID")
            lines = ended.output.split() if not ended.code else []
        owner, _, number = (lines[0] if lines else "").partition("|")
        is_known = re.fullmatch(r"[A-Za-z0-9._@$-]{1,64}", owner) and number.isdecimal()
        return (owner, int(number)) if is_known else (None, None)

    def _look(self, handles: Sequence[str]) -> HelperAnswerIn:
        queued = self._run(
            "squeue", "--noheader", f"--jobs={','.join(handles)}", "--states=all", _QUEUE_COLUMNS
        )
        known = {line.strip().partition("|")[0] for line in queued.output.splitlines()}
        missing = [handle for handle in handles if handle not in known]
        ended = self._account(missing, _ENDED_COLUMNS) if missing else CommandOutput(code=0)
        return self._answer(squeue=queued, sacct=ended)

    def _cancel(self, handles: Sequence[str]) -> HelperAnswerIn:
        queued = self._run(
            "squeue", "--noheader", f"--jobs={','.join(handles)}", "--states=all", "--format=%A|%j"
        )
        if queued.code and "Invalid job id" not in queued.error:
            raise Away(last_line(queued.error))
        names = dict(line.split("|", 1) for line in queued.output.split() if "|" in line)
        if foreign := [handle for handle, name in names.items() if not _NAME.fullmatch(name)]:
            raise Refusal(f"Job {foreign[0]} is not one of Slipway.")
        if not names:
            return self._answer()  # it is gone already
        done = self._run("scancel", *names)
        if done.code and "Invalid job id" not in done.error:
            raise Away(last_line(done.error))
        self._report(f"Cancelled job {', '.join(handles)}.")
        return self._answer()

    def _account(self, handles: Sequence[str], columns: str) -> CommandOutput:
        return self._run(
            *("sacct", *_ACCOUNTING, f"--jobs={','.join(handles)}"),
            *("--starttime=now-30days", columns),
        )

    # Commands

    def _run(self, *command: str, script: str = "") -> CommandOutput:
        """Run a command of Slurm in the person's home. Raises Away if it does not answer."""
        try:
            done = subprocess.run(
                command,
                input=script,
                capture_output=True,
                text=True,
                errors="replace",
                env=self._environment,
                cwd=Path.home(),
                timeout=_COMMAND_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise Away(f"the machine of the helper has no command {command[0]}") from error
        except subprocess.TimeoutExpired as error:
            raise Away(f"{command[0]} did not answer within {_COMMAND_S:g} s") from error
        output, error_text = printable(done.stdout), printable(done.stderr)
        if len(output) > MAX_HELPER_OUTPUT:
            raise Away(f"{command[0]} printed more than {MAX_HELPER_OUTPUT} characters")
        return CommandOutput(
            code=max(-255, min(255, done.returncode)), output=output, error=error_text[-500:]
        )

    def _answer(
        self,
        status: HelperStatus = HelperStatus.DONE,
        text: str = "",
        *,
        handle: str | None = None,
        owner: str | None = None,
        owner_number: int | None = None,
        squeue: CommandOutput | None = None,
        sacct: CommandOutput | None = None,
    ) -> HelperAnswerIn:
        return HelperAnswerIn(
            helper=self.id,
            status=status,
            text=shorten(text, 500),
            handle=handle,
            owner=owner,
            owner_number=owner_number,
            squeue=squeue,
            sacct=sacct,
        )


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for commands: without those that stand for options of Slurm."""
    prefixes = ("SBATCH_", "SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_", "SLIPWAY_")
    kept = {name: value for name, value in environ.items() if not name.startswith(prefixes)}
    conf = environ.get("SLURM_CONF")
    return kept | ({"SLURM_CONF": conf} if conf else {})


def checked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of sbatch that are all allowed. Raises Refusal."""
    for name, value in options.items():
        pattern = _OPTIONS.get(name)
        if pattern is None:
            raise Refusal(f"sbatch has no option {name[:40]!r} that this helper would pass on.")
        if not pattern.fullmatch(value):
            raise Refusal(
                f"{value[:100]!r} is no value of --{name} that this helper would pass on."
            )
    if "job-name" not in options:
        raise Refusal("The request names no job.")
    return dict(options)


def check_script(script: str) -> None:
    """Check a batch script. Raises Refusal for one with options of sbatch, or a very long one."""
    if not script.startswith("#!/bin/sh\n") or len(script) > _MAX_SCRIPT:
        raise Refusal("The batch script is not one of Slipway.")
    if _DIRECTIVE.search(script):
        raise Refusal("The batch script has options of its own.")


def checked_handles(handles: Sequence[str]) -> list[str]:
    """Return numbers of jobs. Raises Refusal."""
    if not 1 <= len(handles) <= _MAX_HANDLES:
        raise Refusal(f"The request is about {len(handles)} jobs.")
    for handle in handles:
        if not re.fullmatch(HANDLE_PATTERN, handle):
            raise Refusal(f"{handle[:40]!r} is not the number of a job.")
    return list(handles)


def has_no_accounting(result: CommandOutput) -> bool:
    """Return True if sacct failed because the site has no accounting."""
    return "accounting storage is disabled" in result.error.lower()


def last_line(text: str) -> str:
    """Return the error of a command without the name of the program."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error: )?", "", lines[-1]) if lines else "it failed without a message"


def printable(text: str) -> str:
    """Return a text without the characters that the server refuses."""
    return "".join(
        "?" if forbidden_character(character, multiline=True) else character for character in text
    )
