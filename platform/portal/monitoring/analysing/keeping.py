"""Taking captured predictions out: into a dataset, or out of existence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from portal.monitoring.analysing.flat import FAILED, write_whole
from portal.monitoring.analysing.measuring import read_rows
from portal.monitoring.analysing.rows import IN

_MOST: Final = 1_000_000


def export(
    *,
    paths: Sequence[str],
    target: str,
    ids: Sequence[str],
    labels: Mapping[str, Sequence[Any]],
    only_labelled: bool,
) -> dict[str, Any]:
    """Write chosen predictions with their labels as one Parquet file.

    Returns how many rows that are, and which revisions predicted them. `labels` are by
    `PREDICTION/ROW`. Inputs keep their names, so that what trained on the data set before can train
    on this; `label` holds the truth, and what begins with `slipway_` the rest.
    """
    if not ids:
        return {"rows": 0, "revisions": []}
    chosen = pc.field("prediction_id").isin(list(ids))
    table, _ = read_rows(paths, where=chosen, most=10**9, failed=None)
    rows: list[dict[str, Any]] = []
    revisions: set[str] = set()
    for one in table.to_pylist():
        key = f"{one['prediction_id']}/{one['row']}"
        known = labels.get(key)
        if known is None and only_labelled:
            continue
        revisions.add(one["revision"] or "")
        rows.append(
            {name.removeprefix(IN): cell for name, cell in one.items() if name.startswith(IN)}
            | {
                "label": known[0] if known is not None else None,
                "slipway_prediction_id": one["prediction_id"],
                "slipway_row": one["row"],
                "slipway_at": one["at"],
                "slipway_model_version": one["model_version"],
                "slipway_status": one[FAILED] or 200,
            }
        )
        if len(rows) >= _MOST:
            break
    if not rows:
        return {"rows": 0, "revisions": []}
    write_whole(pa.Table.from_pylist([_alike(row) for row in rows]), Path(target))
    return {"rows": len(rows), "revisions": sorted(revisions - {""})}


def _alike(row: dict[str, Any]) -> dict[str, Any]:
    label = row["label"]
    if isinstance(label, int) and not isinstance(label, bool):
        row["label"] = float(label)
    elif isinstance(label, bool):
        row["label"] = "true" if label else "false"
    return row


def erase(*, paths: Sequence[str], ids: Sequence[str], own_ids: Sequence[str]) -> dict[str, Any]:
    """Rewrite files without some predictions; returns how many rows are gone, and by which id.

    Raw files know predictions by their own id alone; flat ones also by the client's.
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
