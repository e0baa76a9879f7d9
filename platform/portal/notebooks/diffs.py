"""Diff of two notebook versions, computed in a process that may crash on its input."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from portal.core.confined_process import run_confined
from portal.core.errors import Conflict

log = structlog.get_logger(__name__)
# The process limits its own CPU time. This limit is for a machine that gives it hardly any.
_PATIENCE_S = 120.0
_MOST_RESULT_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class DiffLine:
    """A line of either or both: `mark` is `=`, `-` or `+`."""

    mark: str
    text: str


@dataclass(frozen=True)
class DiffCell:
    """A cell: `same`, `changed`, `added` or `removed`, with its number in each version.

    `outputs` and pictures (as `data:` addresses) are given only where the results differ.
    """

    kind: str
    type: str
    before: int | None
    after: int | None
    lines: Sequence[DiffLine]
    outputs: Sequence[DiffLine]
    pictures_before: Sequence[str]
    pictures_after: Sequence[str]

    @property
    def source_changed(self) -> bool:
        """Return True if the source of the cell differs."""
        return any(line.mark != "=" for line in self.lines)

    @property
    def results_changed(self) -> bool:
        """Return True if the outputs of the cell differ."""
        return bool(self.outputs or self.pictures_before or self.pictures_after)


def differences(before: bytes, after: bytes) -> list[DiffCell]:
    """Return the cells of both notebooks, paired. Raises Conflict when it takes too much."""
    try:
        with tempfile.TemporaryFile() as source:
            source.write(b"%d\n%b%b" % (len(before), before, after))
            source.seek(0)
            done = run_confined(
                "portal.notebooks.comparison",
                source=source,
                within_s=_PATIENCE_S,
                most_output_bytes=_MOST_RESULT_BYTES,
            )
    except subprocess.TimeoutExpired:
        raise _not_comparable("takes too long") from None
    if done.status == -signal.SIGXCPU:
        raise _not_comparable("takes too long")
    if done.status or done.output is None:
        last = done.errors.strip().rpartition("\n")[2]
        log.warning("notebooks_not_compared", status=done.status, said=last[:500])
        raise _not_comparable("needs too much memory, or one of the versions is damaged")
    return [_cell(cell) for cell in json.loads(done.output)["cells"]]


def _cell(values: dict[str, object]) -> DiffCell:
    values["lines"] = [DiffLine(*line) for line in values["lines"]]  # type: ignore[attr-defined]
    values["outputs"] = [DiffLine(*line) for line in values["outputs"]]  # type: ignore[attr-defined]
    return DiffCell(**values)  # type: ignore[arg-type]


def _not_comparable(why: str) -> Conflict:
    return Conflict(
        f"These two versions cannot be compared: it {why}.",
        code="not_comparable",
        next_step="Download both and compare them with `slipway notebook diff`.",
    )
