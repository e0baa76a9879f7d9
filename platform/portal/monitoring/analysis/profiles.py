"""Baselines of training data, computed from rows or from a table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from portal.monitoring.analysis.rows import IN, OUT, Row, Unreadable, limited, output_rows, rows_of
from portal.monitoring.analysis.summaries import read_rows
from portal.monitoring.statistics import performance_estimate
from portal.monitoring.statistics.baselines import (
    CATEGORY,
    NUMBER,
    baseline_of,
    is_class,
    numbers_of,
    texts_of,
)
from portal.monitoring.statistics.tasks import BOOLEAN, STRING, canonical
from slipway.schemas.tables import ReadSettings, TableSchema, distinct_partitions
from slipway.tables import TableReader

_MOST_ROWS: Final = 20_000
_MOST_FIRST: Final = 2_000
_GOLDEN_ROWS: Final = 16
_ENOUGH_TO_CALIBRATE: Final = 200


def profile(
    *,
    inputs: Any,
    predictions: Any = None,
    truth: Sequence[Any] | None = None,
    columns: Sequence[str] = (),
    rows: int = 0,
) -> dict[str, Any]:
    """Return the baselines of rows, and a calibration if predictions and truth are known.

    `inputs` are as in the body of a prediction. `rows` is the number of rows they were sampled
    from.
    """
    limiteds = [limited(row) for row in rows_of(inputs, columns)]
    outputs = [limited(row) for row in output_rows(predictions)] if predictions else []
    records = [*_baselines(limiteds, IN), *_baselines(outputs, OUT)]
    return {
        "features": records,
        "rows": max(rows, len(limiteds)),
        "calibration": _calibration(outputs, truth),
    }


def _baselines(rows: Sequence[Row], prefix: str) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [_baseline(prefix + name, [row.get(name) for row in rows]) for name in names]


def _baseline(name: str, values: list[Any]) -> dict[str, Any]:
    there = [value for value in values if value is not None]
    is_number = bool(there) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in there
    )
    kind = NUMBER if is_number else CATEGORY
    # Inputs of whole numbers with few values stay numeric, because their order has information.
    if kind == NUMBER and name.startswith(OUT) and is_class(numbers_of(values)):
        kind = CATEGORY
    return baseline_of(name, values, kind=kind).as_json()


def _calibration(items: Sequence[Row], truth: Sequence[Any] | None) -> dict[str, Any] | None:
    if truth is None or len(truth) != len(items) or len(items) < _ENOUGH_TO_CALIBRATE:
        return None
    if any("confidence" not in row for row in items):
        return None
    classes, labels = texts_of([row["class"] for row in items]), texts_of(truth)
    # The columns 0 and 1 of scores are false and true, where labels are boolean.
    are_booleans = all(canonical(value, BOOLEAN) for value in (*classes, *labels))
    kind = BOOLEAN if are_booleans else STRING
    right = [
        float(canonical(item, kind) == canonical(true, kind))
        for item, true in zip(classes, labels, strict=True)
    ]
    sure = np.array([row["confidence"] for row in items], dtype=np.float64)
    calibration = performance_estimate.calibrate(sure, np.array(right))
    return {"confidence": calibration.confidence, "share": calibration.share}


def profile_sample(
    *, path: str, columns: Sequence[str], tensors: bool = False
) -> dict[str, Any] | None:
    """Return the baselines of a sample that a run logged, with golden rows for the model.

    None if the model does not accept these rows: they lack all `columns` of its signature, or have
    names although it takes tensors. Other columns of a row, such as the truth, are left out.
    """
    document = json.loads(Path(path).read_bytes())
    if not isinstance(document, dict) or "inputs" not in document:
        raise Unreadable
    rows = document["inputs"]
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        there = set().union(*rows)
        taken = [name for name in columns if name in there]
        if tensors or (columns and not taken):
            return None
        document["inputs"] = [{name: row.get(name) for name in taken or row} for row in rows]
        document["columns"] = taken or document.get("columns")
    values = profile(
        inputs=document["inputs"],
        predictions=document.get("predictions"),
        truth=document.get("truth"),
        columns=document.get("columns") or columns,
        rows=int(document.get("rows") or 0),
    )
    golden = None
    if document.get("predictions") and isinstance(document["inputs"], list):
        rows = document["inputs"][:_GOLDEN_ROWS]
        names = document.get("columns")
        if names and all(isinstance(row, list) for row in rows):
            rows = [dict(zip(names, row, strict=False)) for row in rows]
        golden = {"inputs": rows, "outputs": document["predictions"][:_GOLDEN_ROWS]}
    return values | {"golden": golden}


def profile_table(
    *,
    paths: Sequence[str],
    names: Sequence[str],
    format: str,  # noqa: A002
    columns: Sequence[str],
    schema: dict[str, Any],
) -> dict[str, Any]:
    """Return the baselines of the inputs of a model in a table of a dataset version.

    `schema` is the stored schema of the table, which jobs read it with, too. `names` are those of
    its files. `columns` are the names of the inputs. Without any all columns count. A table that
    lacks some of them is refused, even with as many columns as the model takes: a match would be a
    guess.
    """
    rows: list[Row] = []
    total = 0
    stored = TableSchema.model_validate(schema) if schema else None
    settings = stored.settings if stored else ReadSettings()
    reader = TableReader(
        settings,
        schema=stored,
        partitions=distinct_partitions(names),
        on_problem=lambda problem: None,
    )
    for path, name in zip(paths, names, strict=True):
        with Path(path).open("rb") as source:
            for batch in reader.read(source, path=name, format=format):
                total += batch.num_rows
                if len(rows) < _MOST_ROWS:
                    rows += batch.slice(0, _MOST_ROWS - len(rows)).to_pylist()
    if columns:
        there = set(rows[0]) if rows else set()
        if not there.issuperset(columns):
            raise Unreadable
        rows = [{name: row[name] for name in columns} for row in rows]
    values = profile(inputs=[limited(row) for row in rows])
    return values | {"rows": total}


def profile_first(*, paths: Sequence[str], revision: str, enough: int) -> dict[str, Any] | None:
    """Return the baselines of the first predictions of a revision, or None if there are too few."""
    table, _ = read_rows(paths, where=pc.field("revision") == revision)
    if table.num_rows < enough:
        return None
    first = table.sort_by("at").slice(0, max(enough, _MOST_FIRST))
    names = [name for name in first.column_names if name.startswith((IN, OUT))]
    baselines = [_baseline(name, first.column(name).to_pylist()) for name in names]
    return {"features": baselines, "rows": first.num_rows}
