"""Shortening the outputs of a notebook that is too large, cell by cell, so that it stays valid.

What is left out is said in the place where it was: a stream with the sizes, and the same numbers in
the metadata of the cell. Standard library only, like everything a notebook job imports early.
"""

import json
from dataclasses import dataclass
from typing import Any

# Maximum size of the note and the metadata of a shortened cell.
_SENTENCE_BYTES = 600
_HEAD_PARTS, _ALL_PARTS = 2, 3


@dataclass(frozen=True)
class TruncatedNotebook:
    """The notebook as bytes. `cells` lists cell (from 1), bytes left out, and bytes there were."""

    content: bytes
    cells: list[tuple[int, int, int]]

    @property
    def sentence(self) -> str:
        """Sizes of the omitted outputs by cell, or an empty string."""
        return "; ".join(
            f"cell {number}: {_size(left_out)} of {_size(total)} left out"
            for number, left_out, total in self.cells
        )


def truncate_notebook(content: bytes, limit_bytes: int) -> TruncatedNotebook:
    """Return a notebook with outputs short enough for the limit, the same one where it fits.

    Raises ValueError for what is no notebook, or is too large without any output.
    """
    if len(content) <= limit_bytes:
        return TruncatedNotebook(content, [])
    notebook = json.loads(content)
    cells = [cell for cell in notebook["cells"] if isinstance(cell.get("outputs"), list)]
    whole = [[_join_stream(output) for output in cell["outputs"]] for cell in cells]
    sizes = [sum(map(_bytes_of, outputs)) for outputs in whole]
    for cell in cells:
        cell["outputs"] = []
    bare = len(_serialize(notebook))
    budget = limit_bytes - bare
    while budget > 0:
        allowed = _fair_share(sizes, budget)
        shortened = []
        for cell, outputs, size in zip(cells, whole, sizes, strict=True):
            kept = outputs if size <= allowed else _cut(outputs, allowed - _SENTENCE_BYTES, size)
            cell["outputs"] = kept
            if size > allowed:
                left_out = size - sum(map(_bytes_of, kept))
                details = {"left_out_bytes": left_out, "total_bytes": size}
                cell["metadata"]["slipway"] = details
                shortened.append((notebook["cells"].index(cell) + 1, left_out, size))
        written = _serialize(notebook)
        if len(written) <= limit_bytes:
            return TruncatedNotebook(written, shortened)
        budget -= max(len(written) - limit_bytes, budget // 20, 1)
    raise ValueError(
        f"the notebook has {_size(bare)} without any output, and at most {_size(limit_bytes)} "
        "are kept"
    )


def _fair_share(sizes: list[int], budget: int) -> int:
    """Return how large the outputs of a cell may be for all of them together to fit."""
    left = budget
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return budget


def _cut(outputs: list[dict[str, Any]], limit: int, total: int) -> list[dict[str, Any]]:
    """Keep the beginning and the end of outputs, and say between them what is left out."""
    head, rest = _take_fitting(outputs, limit * _HEAD_PARTS // _ALL_PARTS, from_end=False)
    tail, _ = _take_fitting(rest, limit - limit * _HEAD_PARTS // _ALL_PARTS, from_end=True)
    kept = sum(map(_bytes_of, [*head, *tail]))
    text = (
        f"\n[slipway] {_size(total - kept)} of the {_size(total)} that this cell printed and "
        "showed are left out here, because an output notebook has a limit. The job's log has what "
        "was printed. Write large results to files.\n"
    )
    return [*head, {"output_type": "stream", "name": "stderr", "text": text}, *tail]


def _take_fitting(
    outputs: list[dict[str, Any]], limit: int, *, from_end: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Take outputs from one end as long as they fit. Return them and the others, in order."""
    taken: list[dict[str, Any]] = []
    rest = list(reversed(outputs)) if from_end else list(outputs)
    while rest:
        output = rest[0]
        size = _bytes_of(output)
        if size <= limit:
            taken.append(output)
            limit -= size
            rest = rest[1:]
            continue
        text = output["text"] if output.get("output_type") == "stream" else ""
        room = limit - _bytes_of(output | {"text": ""})
        part = _part(text, room, from_end=from_end)
        if part:
            other = text[: len(text) - len(part)] if from_end else text[len(part) :]
            taken.append(output | {"text": part})
            rest[0] = output | {"text": other}
        break
    if from_end:
        return taken[::-1], rest[::-1]
    return taken, rest


def _part(text: str, limit: int, *, from_end: bool) -> str:
    """Return as much of a text as fits into so many bytes of JSON, of whole characters."""
    low, high = 0, max(0, min(len(text), limit))
    while low < high:
        middle = (low + high + 1) // 2
        part = text[-middle:] if from_end else text[:middle]
        if _bytes_of(part) - 2 <= limit:
            low = middle
        else:
            high = middle - 1
    return (text[-low:] if from_end else text[:low]) if low else ""


def _join_stream(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output with the text of a stream in one piece, as both forms are valid."""
    text = output.get("text")
    if output.get("output_type") == "stream" and isinstance(text, list):
        return output | {"text": "".join(map(str, text))}
    return output


def _bytes_of(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _serialize(notebook: dict[str, Any]) -> bytes:
    # In the format of nbformat, except that stream texts are not split into lines. Lone surrogates,
    # which UTF-8 cannot encode, are replaced.
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode("utf-8", "replace")


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    if count < 1024**2:
        return f"{count / 1024:.1f} KiB"
    return f"{count / 1024**2:.1f} MiB"
