"""Extracts captured predictions: exports them to a dataset, or erases them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from portal.monitoring.analysis.export import typed_table
from portal.monitoring.analysis.flatten import write_whole
from portal.monitoring.statistics.tasks import Basis


def export(
    *,
    paths: Sequence[str],
    raw: Sequence[str],
    target: str,
    ids: Sequence[str],
    signatures: Mapping[str, Any],
    types: Mapping[str, str],
    labels: Mapping[str, Sequence[Any]],
    only_labelled: bool,
    basis: Mapping[str, Any],
) -> dict[str, Any]:
    """Write chosen predictions with their labels as one Parquet file.

    Returns the number of rows, and the revisions that predicted them. `labels` are by
    `PREDICTION/ROW`. Inputs keep their names and have the types of the signature, so that code
    trained on the original dataset can train on this one. `label` holds the truth, and columns with
    the prefix `slipway_` the rest.
    """
    if not ids:
        return {"rows": 0, "revisions": []}
    table, revisions = typed_table(
        paths=paths,
        raw=raw,
        ids=ids,
        signatures=signatures,
        types=types,
        labels=labels,
        only_labelled=only_labelled,
        basis=Basis.from_json(basis),
    )
    if table is None:
        return {"rows": 0, "revisions": []}
    write_whole(table, Path(target))
    return {"rows": table.num_rows, "revisions": revisions}


def erase(*, paths: Sequence[str], ids: Sequence[str], own_ids: Sequence[str]) -> dict[str, Any]:
    """Rewrite files without some predictions. Returns the number of rows removed, and their ids.

    Raw files identify predictions by their own id alone. Flat files also by the client's.
    """
    gone: set[str] = set()
    rows = 0
    for path in paths:
        file = Path(path)
        if not file.exists():
            continue
        table = pq.read_table(file)
        condition = pc.is_in(table.column("prediction_id"), pa.array(list(ids), pa.string()))
        if "own_id" in table.column_names and own_ids:
            also = pc.is_in(table.column("own_id"), pa.array(list(own_ids), pa.string()))
            condition = pc.or_(condition, also)
        hit = table.filter(condition)
        if not hit.num_rows:
            continue
        gone.update(hit.column("prediction_id").to_pylist())
        rows += hit.num_rows
        write_whole(table.filter(pc.invert(condition)), file)
    return {"rows": rows, "ids": sorted(gone)}
