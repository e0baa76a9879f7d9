"""`%%slipway`: run a cell of a notebook as a job, and show its log below the cell.

    %%slipway --nodes 2 --procs 2 --strategy ddp --param lr=0.1
    import torch
    …

The cell is a script of its own: it sees none of the notebook's variables, so pass values with
`--param`, and large ones as a dataset or a file. `%slipway JOB` shows a job again, for example
after the browser was closed. In Slipway's notebooks the command is there; elsewhere
`%load_ext slipway` adds it.
"""

import argparse
import contextlib
import shlex
import tempfile
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from slipway.client import Client
from slipway.console import headline, progress_of, watch
from slipway.errors import SlipwayError
from slipway.sanitize import visible
from slipway.schemas.durations import minutes_of
from slipway.schemas.frameworks import FRAMEWORKS
from slipway.schemas.notebook import NotebookError, script_of_cell
from slipway.schemas.training import JobOut
from slipway.schemas.workloads import WorkloadState
from slipway.training import default_or_given_project, train

SCRIPT: Final = "slipway_cell.py"


class CellFailed(Exception):
    """The job of a cell was not accepted or has not succeeded. IPython shows the message alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class _Parser(argparse.ArgumentParser):
    """Raises CellFailed for a wrong option."""

    def error(self, message: str) -> NoReturn:
        raise CellFailed(f"%%slipway: {message}.\nNext step: `%%slipway --help` lists the options.")


def run(shell: Any, line: str, cell: str | None) -> None:
    """Run `%slipway` or `%%slipway` in an IPython shell. Raises CellFailed."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise CellFailed(f"%%slipway: {error} in its first line.") from None
    with contextlib.suppress(SystemExit):  # of --help
        try:
            _run(shell, words, line, cell)
        except SlipwayError as error:
            raise CellFailed(str(error)) from None


def _run(shell: Any, words: Sequence[str], line: str, cell: str | None) -> None:
    if cell is None:
        _follow(_job_parser().parse_args(words))
        return
    options = _cell_parser().parse_args(words)
    job = _submit(options, _script(line, cell))
    if options.into:
        shell.user_ns[options.into] = job
    if options.detach:
        print(f"· The job goes on. Show it: %slipway {job.workload.id}")  # noqa: T201
    else:
        _check(job)


def _script(line: str, cell: str) -> bytes:
    """Return the code of a cell. Its lines keep their numbers, because tracebacks name them."""
    try:
        code = script_of_cell(cell)
    except NotebookError as error:
        raise CellFailed(f"The cell {error.fault}.\nNext step: {error.next_step}") from None
    return f"# %%slipway {visible(line)}\n{code}".encode(errors="backslashreplace")


def _submit(options: argparse.Namespace, script: bytes) -> JobOut:
    with contextlib.ExitStack() as stack:
        folder = options.code
        if options.no_code:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-cell-"))
        return train(
            SCRIPT,
            added={SCRIPT: script},
            folder=folder,
            include=options.include,
            name=options.name,
            nodes=options.nodes,
            procs=options.procs,
            strategy=options.strategy,
            framework=options.framework,
            tier=options.tier,
            pool=options.pool,
            params=dict(options.param),
            requirements=options.requirements,
            environment=options.environment,
            python=options.python,
            datasets=options.dataset,
            max_hours=options.max_hours,
            preemptible=options.preemptible,
            keep_failed_minutes=options.keep_failed,
            project=options.project,
            watch=not options.detach,
        )


def _follow(options: argparse.Namespace) -> None:
    with Client() as client:
        project = default_or_given_project(client, options.project)
        _check(watch(client, client.jobs.get(options.job, project=project)))


def _check(job: JobOut) -> None:
    """Raise CellFailed for a job that ended badly, so that the cells after it do not run."""
    outcome = job.workload.outcome
    if outcome.is_final and outcome is not WorkloadState.SUCCEEDED:
        next_step = f"\nNext step: {job.workload.next_step}" if job.workload.next_step else ""
        raise CellFailed(f"The job {job.workload.id} {headline(progress_of(job))}{next_step}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{visible(text)} is not NAME=VALUE")
    return name, value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{visible(text)} is not a whole number above 0")
    return int(text)


def _minutes(text: str) -> int:
    minutes = minutes_of(text)
    if minutes is None:
        raise argparse.ArgumentTypeError(f"{visible(text)} is not a time such as 15m or 1h")
    return minutes


def _job_parser() -> _Parser:
    parser = _Parser(prog="%slipway", description="Show a job until it ends.", allow_abbrev=False)
    parser.add_argument("job", metavar="JOB", help="id of the job")
    parser.add_argument("--project")
    return parser


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%slipway", description="Run this cell as a job.", allow_abbrev=False)
    add = parser.add_argument
    add("--nodes", type=_count, default=1, help="number of machines")
    add("--procs", type=_count, default=1, help="processes per machine")
    add("--strategy", help="distribution strategy: ddp, zero3, auto …")
    add("--framework", choices=[*FRAMEWORKS], help="form a cluster over all processes")
    add("--tier", help="hardware of one task")
    add("--pool", help="where another scheduler allocates the nodes")
    add("--param", type=_pair, action="append", default=[], metavar="NAME=VALUE")
    add("--dataset", action="append", default=[], metavar="NAME:VERSION")
    add("--requirements", metavar="FILE", help="default: those of the folder")
    add("--environment", help="environment of the project, such as trees@2")
    add("--python", metavar="VERSION")
    add("--max-hours", type=float, metavar="HOURS", help="time limit")
    add("--preemptible", action="store_true", help="cheaper, may be moved for other work")
    add("--keep-failed", type=_minutes, metavar="TIME", help="for a shell after a failure: 15m")
    add("--code", default=".", metavar="FOLDER", help="code that travels with the cell")
    add("--no-code", action="store_true", help="send the cell alone")
    add("--include", action="append", default=[], metavar="FILE", help="although it is ignored")
    add("--name", help="name of the job", default="cell")
    add("--project", help="default: the project in use")
    add("--into", metavar="VARIABLE", help="assign the job to a variable")
    add("--detach", action="store_true", help="do not wait for the end")
    return parser
