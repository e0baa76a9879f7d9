"""Label files that people upload on a page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from portal.accounts.models import User
from portal.core.errors import InvalidInput
from portal.endpoints.models import Endpoint
from portal.monitoring.analyst import AnalysisFailed, analyst
from portal.monitoring.services.labels import LabelCounts, label_predictions
from slipway.schemas.monitoring import LABELS_AT_ONCE, LabelIn

_FIELD = re.compile(r"labels\.(\d+)(?:\.([a-z_]+))?")
_LONGEST_NAME = 100
Rows = Sequence[Mapping[str, Any]]


def label_by_file(
    *, endpoint: Endpoint, by: User, name: str, chunks: Iterable[bytes]
) -> LabelCounts:
    """Store the labels of a CSV, JSON lines or Parquet file, 10,000 at once.

    Raises InvalidInput with line, column and value for a label that cannot be stored.
    """
    name = name[-_LONGEST_NAME:]
    rows = _read(name, chunks)
    done = LabelCounts()
    labels = [_label(name, row) for row in rows]
    for start in range(0, len(rows), LABELS_AT_ONCE):
        end = start + LABELS_AT_ONCE
        try:
            some = label_predictions(endpoint=endpoint, by=by, labels=labels[start:end])
        except InvalidInput as error:
            raise _with_position(error, name, rows[start:end], start) from error
        done.added += some.added
        done.same += some.same
        done.changed += some.changed
        done.empty += some.empty
    return done


def _read(name: str, chunks: Iterable[bytes]) -> Rows:
    with analyst() as process:
        path = Path(process.folder) / "labels"
        with path.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
        try:
            answer = process.request("read_labels", path=str(path), name=name)
        except AnalysisFailed as error:
            raise _refusal(
                f"{name} cannot be read: {error}.", "Upload a CSV, JSON lines or Parquet file."
            ) from error
    if answer["refusal"]:
        raise _refusal(answer["refusal"], answer["next_step"])
    rows: Rows = answer["rows"]
    return rows


def _label(name: str, row: Mapping[str, Any]) -> LabelIn:
    try:
        return LabelIn.model_validate(row["label"])
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        column = f", column {fault['loc'][0]}" if fault["loc"] else ""
        raise _refusal(
            f"{name}, {row['place']}{column}: {fault['msg']}.",
            "Correct the file. No label was stored.",
        ) from error


def _with_position(error: InvalidInput, name: str, rows: Rows, before: int) -> InvalidInput:
    """Return the error of one label with its position in the file."""
    match = _FIELD.fullmatch(error.field or "")
    if match is None:
        return error
    stored = f"The {before:,} labels above were stored." if before else "No label was stored."
    place = f"{name}, {rows[int(match[1])]['place']}, column {match[2] or 'value'}"
    return _refusal(f"{place}: {error.message}", f"{error.next_step} {stored}")


def _refusal(message: str, next_step: str) -> InvalidInput:
    return InvalidInput(message, code="bad_label_file", field="file", next_step=next_step)
