"""Events of a job as lines of text: its log by rank, and each change of its state."""

import sys
from collections.abc import Callable

from slipway.client import Client
from slipway.errors import SlipwayError
from slipway.log_stream import News
from slipway.schemas.money import dollars
from slipway.schemas.training import JobOut, JobProgress, LogPiece
from slipway.terminal_text import LineReader, tame

Say = Callable[[str], None]


class LogLines:
    """Turns pieces of several ranks into lines, each with its rank in front where there are more.

    `colours` keeps those of the log.
    """

    def __init__(self, *, ranks: int, colours: bool) -> None:
        self._width = len(str(max(0, ranks - 1))) if ranks > 1 else 0
        self._colours = colours
        self._readers: dict[tuple[int, int], LineReader] = {}
        self._places: dict[tuple[int, int], int] = {}

    def complete_lines(self, piece: LogPiece) -> list[str]:
        """Return the lines that `piece` completes, safe to write."""
        key = (piece.attempt, piece.rank)
        data = piece.data
        missing = piece.offset - self._places.get(key, piece.offset)
        self._places[key] = piece.offset + len(data)
        lines = self._readers.setdefault(key, LineReader()).read(data)
        if missing > 0:
            lines.insert(0, f"[{missing:,} bytes of the log are gone]")
        return [self._line(piece.rank, line) for line in lines]

    def flush(self) -> list[str]:
        """Return what was begun and not ended, when no more comes."""
        return [
            self._line(rank, line)
            for (_, rank), reader in self._readers.items()
            for line in reader.flush()
        ]

    def _line(self, rank: int, line: str) -> str:
        text = tame(line, colours=self._colours)
        return f"[{rank:>{self._width}}] {text}" if self._width else text


def headline(progress: JobProgress) -> str:
    """Return the status of a job in one sentence: its state, and why."""
    workload = progress.workload
    again = f" (attempt {workload.attempt})" if workload.attempt > 1 else ""
    why = f": {workload.explanation}" if workload.explanation else ""
    return f"{workload.outcome}{again}{why}"


def outcome(job: JobOut) -> list[str]:
    """Return how a job has ended, in lines: what happened, the next step, and what it cost."""
    workload = job.workload
    lines = [headline(progress_of(job))]
    if workload.next_step:
        lines.append(f"Next step: {workload.next_step}")
    details = []
    if workload.started_at and workload.ended_at:
        details.append(f"ran {duration((workload.ended_at - workload.started_at).total_seconds())}")
    if job.step is not None:
        details.append(f"step {job.step:,}")
    details.append(f"cost {dollars(job.cost_nano_usd)}")
    return [*lines, ", ".join(details)]


def progress_of(job: JobOut) -> JobProgress:
    """Return the part of a job that changes while it runs."""
    return JobProgress.model_validate(job)


def duration(seconds: float) -> str:
    """Return a duration as people read it: 0.9 s, 42 s, 3 min 12 s, 5 h 2 min."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Narrator:
    """Says each change of a job once."""

    def __init__(self, say: Say) -> None:
        self._print = say
        self._last_line = ""
        self._has_stepped = False

    def report(self, progress: JobProgress) -> None:
        """Print the changes in `progress`, if any."""
        line = headline(progress)
        if line != self._last_line:
            self._last_line = line
            self._print(line)
        if progress.first_step_after_s is not None and not self._has_stepped:
            self._has_stepped = True
            self._print(f"first step after {duration(progress.first_step_after_s)}")

    def report_reconnect(self, error: SlipwayError, wait_s: float) -> None:
        """Print that the connection is reopened, if that takes long enough to be noticed."""
        if wait_s >= 1:
            self._print(f"{error.message} Trying again in {duration(wait_s)}.")


def watch(client: Client, job: JobOut, *, show: Say = print) -> JobOut:
    """Show a job's changes and log lines live until it ends, and return the ended job.

    An interrupt (Ctrl-C, or the stop button of a notebook) stops the display, not the job.
    """
    project, job_id = job.workload.project, job.workload.id
    narrator = Narrator(lambda text: show(f"· {tame(text, colours=False)}"))
    colours = hasattr(sys.stdout, "isatty") and sys.stdout.isatty()
    lines = LogLines(ranks=job.workload.nodes * job.workload.procs, colours=colours)
    try:
        for news in client.jobs.follow(job_id, project=project, trouble=narrator.report_reconnect):
            _show(news, narrator, lines, show)
        for line in lines.flush():
            show(line)
    except KeyboardInterrupt:
        show(f"· The job goes on. Stop it: client.jobs.cancel({job_id!r}, project={project!r})")
    return client.jobs.get(job_id, project=project)


def _show(news: News, narrator: Narrator, lines: LogLines, show: Say) -> None:
    if isinstance(news, JobProgress):
        narrator.report(news)
    elif isinstance(news, LogPiece):
        for line in lines.complete_lines(news):
            show(line)
