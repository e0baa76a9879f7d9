"""Diff of two notebook versions, computed in a process that may crash on its input."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

import portal
from portal.core.confined_process import confined_command
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
    with tempfile.TemporaryDirectory() as nowhere:
        try:
            process = subprocess.run(
                confined_command("portal.notebooks.comparison", writable=[nowhere]),
                input=b"%d\n%b%b" % (len(before), before, after),
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
                cwd=nowhere,
                # Not our environment, which contains the secrets of the installation.
                env={
                    "PYTHONPATH": str(Path(portal.__path__[0]).parent),
                    "HOME": nowhere,
                    "TMPDIR": nowhere,
                    "LANG": "C.UTF-8",
                },
            )
        except subprocess.TimeoutExpired:
            raise _not_comparable("takes too long") from None
    if process.returncode == -signal.SIGXCPU:
        raise _not_comparable("takes too long")
    if process.returncode or len(process.stdout) > _MOST_RESULT_BYTES:
        last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        log.warning("notebooks_not_compared", status=process.returncode, said=last[:500])
        raise _not_comparable("needs too much memory, or one of the versions is damaged")
    return [_cell(cell) for cell in json.loads(process.stdout)["cells"]]


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
