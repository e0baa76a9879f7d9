"""The command of a job, from what was submitted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from portal.core.errors import InvalidInput
from portal.workloads.specs import RunSpec, spec_from
from slipway.schemas.frameworks import FRAMEWORKS, framework_label
from slipway.schemas.notebook import SUFFIX
from slipway.schemas.strategy import StrategyError, parse_strategy
from slipway.schemas.training import JobIn, script_file

S_A_MINUTE = 60
_NOTEBOOK_PROGRAM = "slipway.notebook_job"
_STEP_PROGRAM = "slipway.step_job"
# Linux limits one argument or variable to 128 KiB. All parameters together are one variable too.
MAX_PARAMS_BYTES = 64 * 1024
MAX_ARGS_BYTES = 64 * 1024
PYTHON = "python"


@dataclass(frozen=True)
class PlatformCommand:
    """A program of `workers.launcher.platform_programs` that a job runs in place of a script.

    `warm` names the program whose warm process starts it.
    """

    command: str
    warm: str


def spec_of(requested: JobIn, python_path: tuple[str, ...] = ()) -> RunSpec:
    """Return what the tasks of a job run. Raises InvalidInput for too long arguments."""
    if len(json.dumps(requested.params)) > MAX_PARAMS_BYTES:
        raise _too_long("params", MAX_PARAMS_BYTES)
    if sum(len(arg.encode()) for arg in requested.args) > MAX_ARGS_BYTES:
        raise _too_long("args", MAX_ARGS_BYTES)
    return spec_from(
        backend=requested.backend,
        argv=_argv(requested),
        keep=tuple(requested.keep),
        keep_limit_bytes=requested.keep_limit_bytes,
        framework=requested.framework,
        # Relative to the folder of the code, in which every rank starts.
        env={"PYTHONPATH": ":".join(python_path)} if python_path else {},
        hang_after_s=requested.hang_after_minutes and requested.hang_after_minutes * S_A_MINUTE,
        keep_failed_s=requested.keep_failed_minutes * S_A_MINUTE,
    )


def check_ranks(requested: JobIn) -> None:
    """Refuse a framework or a strategy that does not suit the number of ranks."""
    _check_framework(requested)
    _check_strategy(requested)


def _check_framework(requested: JobIn) -> None:
    framework = FRAMEWORKS.get(requested.framework or "")
    ranks = requested.nodes * requested.procs
    if framework is None or ranks >= framework.least_ranks:
        return
    raise InvalidInput(
        f"{framework.label} need at least {framework.least_ranks} ranks: {framework.reason}. This "
        f"job has {ranks}.",
        code="too_few_ranks",
        field="framework",
        next_step="Ask for more nodes, or for more processes on each.",
    )


def _check_strategy(requested: JobIn) -> None:
    if requested.strategy is None:
        return
    if requested.framework is not None:
        label = framework_label(requested.framework)
        raise InvalidInput(
            f"A strategy joins ranks that all run the script. With {label} one process runs it, "
            "and the others are nodes of its cluster.",
            code="strategy_with_framework",
            field="strategy",
            next_step=f"Leave out the strategy, or the framework, and distribute with {label}.",
        )
    try:
        strategy = parse_strategy(requested.strategy)
        if not strategy.is_auto:
            strategy.layout(requested.nodes * requested.procs)
    except StrategyError as error:
        raise InvalidInput(
            error.message, code="bad_strategy", field="strategy", next_step=error.next_step
        ) from error


def script_ranks(requested: JobIn) -> int:
    """Return how many processes run the script. Those of a cluster run nodes instead."""
    return 1 if requested.framework else requested.nodes * requested.procs


def _argv(requested: JobIn) -> tuple[str, ...]:
    """Return the command. Notebooks and functions read SLIPWAY_PARAMS."""
    if requested.script.endswith(SUFFIX):
        return (PYTHON, "-m", _NOTEBOOK_PROGRAM, requested.script, *requested.args)
    if script_file(requested.script) != requested.script:
        return (PYTHON, "-m", _STEP_PROGRAM, requested.script)
    return (PYTHON, requested.script, *requested.args, *_flags(requested.params))


def _flags(params: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in params.items()]


def _too_long(field: str, limit_bytes: int) -> InvalidInput:
    return InvalidInput(
        f"All {field} together are longer than {limit_bytes // 1024} KiB.",
        code="too_long",
        field=field,
        next_step="Put them into a file in the snapshot and pass its path instead.",
    )
