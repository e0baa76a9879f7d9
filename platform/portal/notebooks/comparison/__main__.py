"""Reads two notebooks from standard input and writes how they differ, cell by cell.

In: the length of the first in a line, then both. Out: JSON for `portal.notebooks.diffs`.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import Any

import nbformat
from nbdime import diff_notebooks

from portal.notebooks.cell_renderer import lines_of, render_outputs

_MEMORY_BYTES = 2 * 1024**3
_CPU_S = 20
Cell = dict[str, Any]


def cells_of(before: Any, after: Any) -> Iterator[dict[str, Any]]:
    """Yield the cells of both in order: same, changed, added or removed, as nbdime pairs them."""
    ops: list[Any] = []
    for op in diff_notebooks(before, after):
        if op.key == "cells":
            ops = op.diff
    at = shift = 0
    for op in ops:
        while at < op.key:
            yield _pair(before.cells[at], after.cells[at + shift], at, at + shift)
            at += 1
        if op.op == "addrange":
            for cell in op.valuelist:
                yield _unpaired_cell("added", cell, at + shift)
                shift += 1
        elif op.op == "removerange":
            for cell in before.cells[at : at + op.length]:
                yield _unpaired_cell("removed", cell, at)
                at, shift = at + 1, shift - 1
        elif op.op == "patch":
            yield _pair(before.cells[at], after.cells[at + shift], at, at + shift)
            at += 1
    while at < len(before.cells):
        yield _pair(before.cells[at], after.cells[at + shift], at, at + shift)
        at += 1


def _unpaired_cell(kind: str, cell: Cell, at: int) -> dict[str, Any]:
    mark = "+" if kind == "added" else "-"
    text, pictures = render_outputs(cell)
    return {
        "kind": kind,
        "type": str(cell["cell_type"]),
        "before": at + 1 if kind == "removed" else None,
        "after": at + 1 if kind == "added" else None,
        "lines": [[mark, line] for line in lines_of(cell["source"])],
        "outputs": [[mark, line] for line in text],
        "pictures_before": pictures if kind == "removed" else [],
        "pictures_after": pictures if kind == "added" else [],
    }


def _pair(item: Cell, other: Cell, at: int, at_after: int) -> dict[str, Any]:
    (text, pictures), (text_after, pictures_after) = render_outputs(item), render_outputs(other)
    same_source = item["source"] == other["source"] and item["cell_type"] == other["cell_type"]
    same_outputs = text == text_after and pictures == pictures_after
    return {
        "kind": "same" if same_source and same_outputs else "changed",
        "type": str(other["cell_type"]),
        "before": at + 1,
        "after": at_after + 1,
        "lines": _compared(lines_of(item["source"]), lines_of(other["source"])),
        "outputs": [] if same_outputs else _compared(text, text_after),
        "pictures_before": [] if same_outputs else pictures,
        "pictures_after": [] if same_outputs else pictures_after,
    }


def _compared(item: list[str], other: list[str]) -> list[list[str]]:
    compared: list[list[str]] = []
    for tag, low, high, low_after, high_after in SequenceMatcher(None, item, other).get_opcodes():
        if tag == "equal":
            compared += [["=", line] for line in item[low:high]]
            continue
        compared += [["-", line] for line in item[low:high]]
        compared += [["+", line] for line in other[low_after:high_after]]
    return compared


def main() -> None:
    """Read, compare, write."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    length = int(sys.stdin.buffer.readline(32))
    texts = (sys.stdin.buffer.read(length), sys.stdin.buffer.read())
    read: Callable[[str], Any] = nbformat.v4.reads
    before, after = (read(text.decode()) for text in texts)
    sys.stdout.write(json.dumps({"cells": [*cells_of(before, after)]}))


if __name__ == "__main__":
    main()
