"""Live view of a job: log lines and status, on a terminal or in a pipe."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import NoReturn, Protocol, Self

import typer
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from slipway.cli.build_logs import show_failed_builds
from slipway.cli.exits import ExitCode, exit_code_of
from slipway.cli.output import console
from slipway.cli.session import Session
from slipway.console import LogLines, Narrator, duration, headline, outcome, progress_of
from slipway.credentials import default_project
from slipway.sanitize import visible
from slipway.schemas.money import dollars
from slipway.schemas.training import JobOut, JobProgress, LogPiece, SampleOut

_HINT = "Ctrl-C stops watching. The job continues."


class Screen(Protocol):
    """Target of a live view."""

    def __enter__(self) -> Self:
        """Start the display."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the display, and leave its final state on screen."""

    def lines(self, lines: Sequence[str]) -> None:
        """Show sanitized log lines."""

    def message(self, text: str) -> None:
        """Show a message about the job."""

    def progress(self, progress: JobProgress) -> None:
        """Record the progress of the job."""

    def sample(self, sample: SampleOut) -> None:
        """Record the resource usage of a task."""


class PipeScreen:
    """Log lines on standard output, messages on standard error."""

    def __init__(self, session: Session) -> None:
        self._output = session.output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def lines(self, lines: Sequence[str]) -> None:
        """Write lines immediately, because a pipe has a waiting reader."""
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()

    def message(self, text: str) -> None:
        """Write a message."""
        self._output.note(text)

    def progress(self, progress: JobProgress) -> None:
        """Do nothing, because each change is written as a message."""

    def sample(self, sample: SampleOut) -> None:
        """Do nothing, because a pipe cannot show a value that changes every second."""


class _Raw:
    """Sanitized text that Rich writes without inspecting each character."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveScreen:
    """The log, with a status at the bottom of the terminal that refreshes four times a second."""

    def __init__(self, job: JobOut) -> None:
        self.console = console(sys.stdout)
        self._progress = progress_of(job)
        self._uses: dict[int, SampleOut] = {}
        is_unicode = self.console.encoding.startswith("utf")
        self._turning = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if is_unicode else "|/-\\"
        self._live = Live(
            console=self.console,
            get_renderable=self._status,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def lines(self, lines: Sequence[str]) -> None:
        """Write lines above the status."""
        if lines:
            self.console.print(_Raw("\n".join([*lines, ""])), soft_wrap=True, end="")

    def message(self, text: str) -> None:
        """Write a dim message between the log lines."""
        self.console.print(Text(f"· {visible(text)}", style="dim"), soft_wrap=True)

    def progress(self, progress: JobProgress) -> None:
        """Update the shown progress."""
        self._progress = progress

    def sample(self, sample: SampleOut) -> None:
        """Update the shown resource usage."""
        self._uses[sample.task] = sample

    def _status(self) -> Group:
        """Return the status of three lines, none wider than the terminal."""
        workload = self._progress.workload
        details = [visible(workload.outcome)]
        if self._progress.step is not None:
            details.append(f"step {self._progress.step:,}")
        if workload.attempt > 1:
            details.append(f"attempt {workload.attempt}")
        if workload.started_at is not None:
            ran = datetime.now(UTC) - workload.started_at
            details.append(duration(max(0.0, ran.total_seconds())))
        details.append(dollars(self._progress.cost_nano_usd))
        details += self._use()
        frame = self._turning[int(time.monotonic() * 8) % len(self._turning)]
        lines = (
            (f"{frame} {' · '.join(details)}", "bold"),
            (f"  {visible(workload.explanation)}", ""),
            (f"  {_HINT}", "dim"),
        )
        return Group(
            *(Text(line, style=style, no_wrap=True, overflow="ellipsis") for line, style in lines)
        )

    def _use(self) -> list[str]:
        uses = list(self._uses.values())
        if not uses:
            return []
        cpu = sum(use.cpu_percent for use in uses)
        memory = sum(use.memory_bytes for use in uses) / 1024**3
        result = [f"CPU {cpu:.0f} %", f"{memory:.1f} GiB"]
        gpus = [use.gpu_percent for use in uses if use.gpu_percent is not None]
        if gpus:
            result.append(f"GPU {sum(gpus) / len(gpus):.0f} %")
        return result


def watch(
    session: Session, job: JobOut, *, rank: int | None = None, attempt: int | None = None
) -> NoReturn:
    """Show a job until it ends, and exit with the code of its outcome.

    With --json and --quiet, only wait and print the final job.
    """
    project, job_id = job.workload.project, job.workload.id
    with _interruptible(session, job):
        if session.output.as_json or session.output.quiet:
            ended = session.client.jobs.wait(job_id, project=project)
        else:
            _show(session, job, rank, attempt)
            ended = session.client.jobs.get(job_id, project=project)
            show_failed_builds(session, ended)
    if session.output.as_json:
        session.output.document(ended)
    elif session.output.quiet:
        session.output.line(job_id)
    for line in outcome(ended)[1:]:
        session.output.note(line)
    sys.stdout.flush()
    raise typer.Exit(exit_code_of(ended.workload.outcome))


def _show(session: Session, job: JobOut, rank: int | None, attempt: int | None) -> None:
    project, job_id = job.workload.project, job.workload.id
    screen, colours = _screen(session, job)
    ranks = 1 if rank is not None else job.workload.nodes * job.workload.procs
    lines = LogLines(ranks=ranks, colours=colours)
    with screen:
        narrator = Narrator(screen.message)
        news = session.client.jobs.follow(
            job_id, project=project, rank=rank, attempt=attempt, trouble=narrator.report_reconnect
        )
        for item in news:
            if isinstance(item, LogPiece):
                screen.lines(lines.complete_lines(item))
            elif isinstance(item, JobProgress):
                screen.progress(item)
                narrator.report(item)
            else:
                screen.sample(item)
        screen.lines(lines.flush())


def _screen(session: Session, job: JobOut) -> tuple[Screen, bool]:
    """Return the screen for the job, and whether it has colours."""
    colours = shows_colours()
    if sys.stdout.isatty() and not console(sys.stdout).is_dumb_terminal:
        return LiveScreen(job), colours
    return PipeScreen(session), colours


def shows_colours() -> bool:
    """Return whether standard output supports colours and the user did not disable them."""
    screen = console(sys.stdout)
    return screen.is_terminal and screen.color_system is not None and not screen.no_color


@contextmanager
def _interruptible(session: Session, job: JobOut) -> Iterator[None]:
    """Let the first Ctrl-C end the live view, and ignore further ones."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    except KeyboardInterrupt:
        where = job_arguments(session, job)
        session.output.note(
            "Stopped watching. The job continues.\n"
            f"Watch it again: slipway job logs {where} --follow\n"
            f"Stop it: slipway job cancel {where}"
        )
        # Ctrl-C stays ignored, because the command is ending.
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    signal.signal(signal.SIGINT, before)


def job_arguments(session: Session, job: JobOut) -> str:
    """Return the arguments that identify the job: its id, and its project if needed."""
    project = job.workload.project
    is_usual = project == default_project(session.url)
    return job.workload.id + ("" if is_usual else f" --project {project}")


def print_new_job(session: Session, job: JobOut) -> None:
    """Print the page, price and state of a new job."""
    page = session.client.jobs.page(job.workload.id, project=job.workload.project)
    session.output.note(
        f"{job.workload.id}  {page}\n{dollars(job.nano_usd_per_hour)} an hour; "
        f"{headline(progress_of(job))}"
    )
