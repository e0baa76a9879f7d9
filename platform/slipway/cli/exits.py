"""Exit codes of the `slipway` command, as documented in docs/cli.md."""

from enum import IntEnum

from slipway.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    RateLimited,
    SlipwayError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from slipway.schemas.workloads import WorkloadState


class UsageMistake(SlipwayError):
    """Invalid command line. Nothing was sent."""

    title = "The command is not valid"
    default_code = "usage"


class ExitCode(IntEnum):
    """Exit codes for scripts."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_SIGNED_IN = 3
    FORBIDDEN = 4
    NOT_FOUND = 5
    INVALID = 6
    UNAVAILABLE = 7
    JOB_FAILED = 8
    JOB_STOPPED = 9
    JOB_LOST = 10
    NOT_REPRODUCIBLE = 11
    VULNERABLE = 12
    INTERRUPTED = 130
    PIPE_CLOSED = 141


_CODES: tuple[tuple[type[SlipwayError], ExitCode], ...] = (
    (UsageMistake, ExitCode.USAGE),
    (Unauthenticated, ExitCode.NOT_SIGNED_IN),
    (Forbidden, ExitCode.FORBIDDEN),
    (NotFound, ExitCode.NOT_FOUND),
    (InvalidInput, ExitCode.INVALID),
    (Conflict, ExitCode.INVALID),
    (TooLarge, ExitCode.INVALID),
    (RateLimited, ExitCode.UNAVAILABLE),
    (Unavailable, ExitCode.UNAVAILABLE),
)


def exit_code_for(error: SlipwayError) -> ExitCode:
    """Return the exit code that stands for `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.UNEXPECTED


_OUTCOMES = {
    WorkloadState.FAILED: ExitCode.JOB_FAILED,
    WorkloadState.STOPPED: ExitCode.JOB_STOPPED,
    WorkloadState.LOST: ExitCode.JOB_LOST,
}


def exit_code_of(state: WorkloadState) -> ExitCode:
    """Return the exit code that stands for how a job has ended."""
    return _OUTCOMES.get(state, ExitCode.OK)
