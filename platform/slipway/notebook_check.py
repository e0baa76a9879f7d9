"""Reproducibility check of notebooks: saved execution counts, and differences of a clean run.

Standard library only: it runs inside jobs, whose environments are their owners'.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Cell = Mapping[str, Any]
# Tags of cells whose output may differ in each run.
IGNORED_TAGS = frozenset({"verify-ignore-output", "nbval-ignore-output"})
MAX_FINDINGS = 500
_SHOWN = 2000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_NAME_ERROR = re.compile(r"name '([^']+)' is not defined")
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f]"
    r"|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_IGNORE_HINT = "Fix what makes it random (a seed, an order), or tag the cell verify-ignore-output."


@dataclass(frozen=True)
class CellFinding:
    """Finding in one cell. See `slipway.schemas.notebook_files.Finding`."""

    kind: str
    cell: int
    is_problem: bool
    message: str
    next_step: str = ""
    saved: str = ""
    fresh: str = ""


@dataclass(frozen=True)
class CheckResult:
    """Result of a clean run. See `slipway.schemas.notebook_files.CheckReport`."""

    passed: bool
    code_cells: int
    ran: int
    duration_s: float
    findings: Sequence[CellFinding] = field(default=())
    findings_left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as the API takes it."""
        return asdict(self) | {"findings": [asdict(cell_finding) for cell_finding in self.findings]}


def report_on(
    saved: Mapping[str, Any], fresh: Mapping[str, Any], *, duration_s: float
) -> CheckResult:
    """Compare a notebook as it was saved with the same after a clean run, top to bottom."""
    cells = [*_code_cells(saved)]
    after = dict(_code_cells(fresh))
    ran = [number for number, _ in cells if after.get(number, {}).get("execution_count")]
    cell_findings = [*_check_run_order(cells), *_fresh_results(cells, after)]
    cell_findings.sort(key=lambda item: (item.cell, not item.is_problem))
    return CheckResult(
        passed=not any(cell_finding.is_problem for cell_finding in cell_findings),
        code_cells=len(cells),
        ran=len(ran),
        duration_s=round(duration_s, 3),
        findings=cell_findings[:MAX_FINDINGS],
        findings_left_out=max(0, len(cell_findings) - MAX_FINDINGS),
    )


def _code_cells(notebook: Mapping[str, Any]) -> Iterator[tuple[int, Cell]]:
    """Yield cells of code that say something, with their number among all cells."""
    for number, cell in enumerate(notebook.get("cells", ()), start=1):
        if cell.get("cell_type") == "code" and text_of(cell.get("source")).strip():
            yield number, cell


def text_of(value: Any) -> str:
    """Return text that a notebook holds as a string or as a list of lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _check_run_order(cells: Sequence[tuple[int, Cell]]) -> Iterator[CellFinding]:
    """Return the cells that were run before one above them, and those never run."""
    highest, above = 0, 0
    any_ran = any(cell.get("execution_count") for _, cell in cells)
    for number, cell in cells:
        count = cell.get("execution_count")
        if not isinstance(count, int) or not count:
            if any_ran:
                yield CellFinding(
                    "never_run",
                    number,
                    is_problem=False,
                    message=f"Cell {number} was not run before the notebook was saved; "
                    "its results were not compared.",
                    next_step="Run all cells, then save.",
                )
            continue
        if count < highest:
            yield CellFinding(
                "out_of_order",
                number,
                is_problem=False,
                message=f"Cell {number} was run before cell {above}, which stands above it "
                f"([{count}] against [{highest}]).",
                next_step="Restart the kernel and run all cells, then save.",
            )
        else:
            highest, above = count, number


def _fresh_results(
    cells: Sequence[tuple[int, Cell]], after: Mapping[int, Cell]
) -> Iterator[CellFinding]:
    for number, cell in cells:
        fresh = after.get(number, {})
        error = next(
            (output for output in _outputs(fresh) if output.get("output_type") == "error"), None
        )
        expects_error = "raises-exception" in tags_of(cell)
        if error is not None and not expects_error:
            yield _failure(number, error, cells)
        elif cell.get("execution_count") and fresh.get("execution_count"):
            yield from _difference(number, cell, fresh)


def _failure(
    number: int, error: Mapping[str, Any], cells: Sequence[tuple[int, Cell]]
) -> CellFinding:
    name, value = str(error.get("ename", "")), text_of(error.get("evalue"))
    missing = _NAME_ERROR.search(value) if name == "NameError" else None
    if missing is None:
        return CellFinding(
            "fails",
            number,
            is_problem=True,
            message=shortened(f"Cell {number} fails in a clean kernel: {name}: {value}"),
            next_step="Mend the cell; the cells below it were not run.",
        )
    requested = missing[1]
    makers = [
        place for place, cell in cells if requested in _assigned_names(text_of(cell.get("source")))
    ]
    below = [place for place in makers if place > number]
    if below:
        next_step = f"Move what makes it up from cell {below[0]}, then run all cells."
    else:
        next_step = (
            "No cell makes it: one that did was deleted or changed while its kernel "
            "remembered. Write that cell again (the history of the notebook may have it)."
        )
    return CellFinding(
        "hidden_state",
        number,
        is_problem=True,
        message=shortened(f"Cell {number} uses {requested}, which no cell above it makes."),
        next_step=next_step,
    )


def _assigned_names(source: str) -> set[str]:
    """Return the names that a cell assigns, or none if it is not plain Python."""
    plain = "\n".join(
        "" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n")
    )
    try:
        tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    result: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            result.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            result.add(node.name)
        elif isinstance(node, ast.alias):
            result.add((node.asname or node.name).partition(".")[0])
    return result


def _difference(number: int, saved: Cell, fresh: Cell) -> Iterator[CellFinding]:
    if IGNORED_TAGS & set(tags_of(saved)):
        return
    before, now = _results(saved), _results(fresh)
    if before == now:
        return
    yield CellFinding(
        "differs",
        number,
        is_problem=True,
        message=f"Cell {number} gives {_describe_change(before, now)} in a clean kernel.",
        next_step=_IGNORE_HINT,
        saved=shortened("\n".join(shown for _, shown, _ in before)),
        fresh=shortened("\n".join(shown for _, shown, _ in now)),
    )


def _describe_change(
    before: Sequence[tuple[str, str, str]], now: Sequence[tuple[str, str, str]]
) -> str:
    if not now:
        return "no result"
    if not before:
        return "a result where none was saved"
    kinds = {item[0] for item in (*before, *now)}
    return "another picture" if kinds == {"picture"} else "another result"


def _results(cell: Cell) -> list[tuple[str, str, str]]:
    """Return what a cell shows: sort, text for people, and what is compared."""
    results: list[tuple[str, str, str]] = []
    printed = "".join(
        text_of(output.get("text"))
        for output in _outputs(cell)
        if output.get("output_type") == "stream" and output.get("name") == "stdout"
    )
    if printed:
        results.append(("text", printed, _ADDRESS.sub("0x", printed)))
    for output in _outputs(cell):
        if output.get("output_type") == "error":
            results.append(("error", str(output.get("ename")), str(output.get("ename"))))
        elif output.get("output_type") in ("execute_result", "display_data"):
            results += _displayed_data(output.get("data"))
    return results


def _displayed_data(data: Any) -> Iterator[tuple[str, str, str]]:
    """Yield a result's pictures and plain text, and other formats only without plain text."""
    if not isinstance(data, Mapping):
        return
    pictures = sorted(mime for mime in data if str(mime).startswith("image/"))
    for mime in pictures:
        yield "picture", f"a picture ({mime})", "".join(text_of(data[mime]).split())
    if pictures:
        return
    if "text/plain" in data:
        text = text_of(data["text/plain"])
        yield "text", text, _ADDRESS.sub("0x", text)
        return
    for mime in sorted(map(str, data)):
        yield "data", f"data ({mime})", _ADDRESS.sub("0x", text_of(data[mime]))


def _outputs(cell: Cell) -> list[Mapping[str, Any]]:
    outputs = cell.get("outputs")
    return (
        [item for item in outputs if isinstance(item, Mapping)] if isinstance(outputs, list) else []
    )


def tags_of(cell: Cell) -> list[str]:
    """Return the tags of a cell."""
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, Mapping) else None
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def shortened(text: str) -> str:
    """Return text fit to be stored and shown: no control characters, and not too long."""
    clean = _CONTROL.sub("", text).strip()
    return clean if len(clean) <= _SHOWN else f"{clean[: _SHOWN - 1]}…"
