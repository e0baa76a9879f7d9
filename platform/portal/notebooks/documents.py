"""A notebook as JSON: its source and its outputs apart, together again, and its parameters.

Both halves are written as Jupyter writes notebooks, so that what comes together again is, byte for
byte, what a current JupyterLab had saved.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from portal.core.errors import InvalidInput
from slipway.schemas.json_text import DuplicateKey, read_json

MAX_CELLS = 10_000
_MAX_PARAMETERS = 100
_PARAMETER = re.compile(
    r"\A(?P<name>[A-Za-z_]\w{0,99})[ \t]*(?::[^=\n]{1,100})?=(?!=)[ \t]*(?P<value>[^#\n]{1,1000})"
)
# Cell metadata that describes an execution, not the source.
_OF_A_RUN = ("execution", "ExecuteTime", "papermill")


@dataclass(frozen=True)
class NotebookParts:
    """A notebook taken apart. `outputs` is None where there are none."""

    source: bytes
    outputs: bytes | None
    cells: int
    parameters: list[list[str]]


def split_outputs(content: bytes) -> NotebookParts:
    """Return the halves of a notebook. Raises InvalidInput for what is none of format 4."""
    notebook = _parse(content)
    halves = [_result_of(cell) for cell in _code_cells(notebook)]
    state = notebook.get("metadata", {}).pop("widgets", None)
    has_any = state is not None or any(half != _EMPTY for half in halves)
    outputs = {"cells": halves} | ({"widgets": state} if state is not None else {})
    return NotebookParts(
        source=_serialize(notebook),
        outputs=_serialize(outputs) if has_any else None,
        cells=len(notebook["cells"]),
        parameters=[*_parameters(notebook)],
    )


_EMPTY: dict[str, Any] = {"execution_count": None, "outputs": []}


def _result_of(cell: dict[str, Any]) -> dict[str, Any]:
    """Take out of a cell what it came to, leaving in place what every cell has."""
    result = {"execution_count": cell.get("execution_count"), "outputs": cell.get("outputs") or []}
    cell["execution_count"], cell["outputs"] = None, []
    metadata = cell.get("metadata")
    if isinstance(metadata, dict):
        metadatas_by_name = {name: metadata.pop(name) for name in _OF_A_RUN if name in metadata}
        result |= {"metadata": metadatas_by_name} if metadatas_by_name else {}
    return result


def merge_outputs(source: bytes, outputs: bytes | None) -> bytes:
    """Return the notebook of two halves."""
    if outputs is None:
        return source
    notebook, results = json.loads(source), json.loads(outputs)
    for cell, result in zip(_code_cells(notebook), results["cells"], strict=True):
        cell["execution_count"], cell["outputs"] = result["execution_count"], result["outputs"]
        if "metadata" in result:
            cell.setdefault("metadata", {}).update(result["metadata"])
    if "widgets" in results:
        notebook.setdefault("metadata", {})["widgets"] = results["widgets"]
    return _serialize(notebook)


def _parse(content: bytes) -> dict[str, Any]:
    try:
        document = read_json(content)
        is_notebook = (
            isinstance(document, dict)
            and document.get("nbformat") == 4
            and isinstance(document.get("metadata", {}), dict)
            and isinstance(document.get("cells"), list)
            and all(isinstance(cell, dict) for cell in document["cells"])
        )
    except DuplicateKey as error:
        raise InvalidInput(
            f"In the notebook {error}.",
            code="duplicate_key",
            field="content",
            next_step="Save it in JupyterLab, which writes each key once.",
        ) from error
    except (ValueError, RecursionError):
        is_notebook = False
    if not is_notebook:
        raise InvalidInput(
            "This is not a notebook of format 4.",
            code="not_a_notebook",
            field="content",
            next_step="Save it in JupyterLab and send the .ipynb unchanged.",
        )
    if len(document["cells"]) > MAX_CELLS:
        raise InvalidInput(
            f"The notebook has {len(document['cells'])} cells; at most {MAX_CELLS} are allowed.",
            code="too_many_cells",
            field="content",
            next_step="Split it into several notebooks.",
        )
    result: dict[str, Any] = document
    return result


def _code_cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (cell for cell in notebook["cells"] if cell.get("cell_type") == "code")


def _serialize(document: object) -> bytes:
    # In the format of nbformat.
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can represent
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _parameters(notebook: dict[str, Any]) -> Iterator[list[str]]:
    """Yield name and value, as text, of what the cell tagged `parameters` sets, line by line."""
    for cell in _code_cells(notebook):
        metadata = cell.get("metadata")
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        if not isinstance(tags, list) or "parameters" not in tags:
            continue
        source = cell.get("source")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source or "")
        matches = (_PARAMETER.match(line) for line in text.splitlines()[:1000])
        pairs = [[match["name"], _unquoted(match["value"])] for match in matches if match]
        yield from pairs[:_MAX_PARAMETERS]
        return


def _unquoted(value: str) -> str:
    """Return a value as a person types it: text without its quotes, and fit to be stored."""
    value = "".join(item for item in value.strip() if item.isprintable())
    if (
        len(value) >= 2
        and value[0] == value[-1]
        and value[0] in "'\""
        and value[0] not in value[1:-1]
    ):
        return value[1:-1]
    return value
