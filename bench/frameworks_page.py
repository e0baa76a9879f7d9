"""The table of `docs/frameworks.md`: written from results, row by row."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.framework_rows import ROWS, Row

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "frameworks.md"
BEGIN, END = "<!-- the table of bench/frameworks.py -->", "<!-- its end -->"
COLUMNS = (
    *("framework", "versions", "job", "several ranks", "serving after", "predictions"),
    *("changed", "result", "commit"),
)


@dataclass
class RowResult:
    """Results of a row: seconds of its jobs and until its endpoint served, from the submission.

    `predictions` is their number in monitoring. `failure` is empty if all checks passed.
    """

    row: Row
    versions: str = ""
    job_s: float | None = None
    ranks_s: float | None = None
    serve_s: float | None = None
    predictions: int | None = None
    failure: str = ""

    @property
    def is_unmodified(self) -> bool:
        """Return True if all checks passed without a changed line."""
        return not self.failure and not self.row.changed

    def cells(self, commit: str) -> list[str]:
        """Return the cells of the table."""
        ranks = "one process"
        if self.row.ranks > 1:
            seconds = self.ranks_s if self.row.ranks > self.row.first_ranks else self.job_s
            ranks = _seconds(seconds) + (f", {self.row.ranks} ranks" if self.row.ranks > 2 else "")
        serving = _seconds(self.serve_s) if self.row.model else "no model"
        cells = [
            f"[{self.row.title}](../examples/frameworks/{self.row.name}/train.py)",
            self.versions,
            _seconds(self.job_s),
            ranks,
            serving,
            "" if self.predictions is None else str(self.predictions),
            self.row.changed or "nothing",
            self.failure or "passed",
            commit,
        ]
        return [cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells]

    def line(self) -> str:
        """Return the row as a line for a terminal."""
        return " | ".join(self.cells("")[:-1])


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} s"


def title_of(line: str) -> str:
    """Return the title in the first cell of a line of the table."""
    return line.strip("| ").partition("]")[0].removeprefix("[")


def read_lines() -> dict[str, str]:
    """Return the lines of the table on the page, by the title of their row."""
    block = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return {title_of(line): line for line in block.splitlines() if line.startswith("| [")}


def write_page(results: Sequence[RowResult]) -> None:
    """Replace the rows of these results, and drop those that no longer exist."""
    lines = read_lines()
    commit = f"{_commit()}, {time.strftime('%-d %B', time.gmtime())}"
    for result in results:
        lines[result.row.title] = f"| {' | '.join(result.cells(commit))} |"
    ordered = [lines[row.title] for row in ROWS if row.title in lines]
    header = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    block = "\n".join([BEGIN, "", *header, *ordered, "", END])
    PAGE.write_text(before + block + rest.partition(END)[2], encoding="utf-8")


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
