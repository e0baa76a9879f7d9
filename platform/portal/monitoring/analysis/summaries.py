"""Summaries of captured predictions by hour and by window, compared with the baseline."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from portal.monitoring.analysis.flatten import DRAWS, FACTS, FAILED
from portal.monitoring.analysis.rows import IN, OUT
from portal.monitoring.statistics import performance_estimate, quality
from portal.monitoring.statistics import truths as truth_of
from portal.monitoring.statistics.baselines import Baseline, Floats, bin_values
from portal.monitoring.statistics.drift_verdicts import DIFFERENT, DriftThresholds, compare
from portal.monitoring.statistics.tasks import Basis
from portal.monitoring.statistics.tasks import observe as observed

MOST_ROWS: Final = 200_000
_WINDOW_ROWS: Final = 20_000
_MOST_BASE_NAMES: Final = 2_000
_OBSERVED_ROWS: Final = 20_000
_MOST_OBSERVED: Final = 200


def read_rows(
    paths: Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    most: int = MOST_ROWS,
    failed: bool | None = False,
) -> tuple[pa.Table, float]:
    """Return the rows of parts, or a random sample of many, and the share that was read.

    `failed` selects failed predictions instead of answered ones, None both.
    """
    files = [path for path in paths if Path(path).exists()]
    if not files:
        return pa.table({}), 1.0
    total = sum(pq.read_metadata(file).num_rows for file in files)
    cut = DRAWS if total <= most else max(1, DRAWS * most // total)
    schema = pa.unify_schemas(
        [*(pq.read_schema(file) for file in files), pa.schema([FACTS.field(FAILED)])],
        promote_options="permissive",
    )
    condition = ~pc.field("is_shadow")
    if failed is not None:
        condition &= pc.field(FAILED).is_valid() if failed else pc.field(FAILED).is_null()
    if cut < DRAWS:
        condition &= pc.field("draw") < cut
    if where is not None:
        condition &= where
    names = [name for name in columns if name in schema.names] if columns is not None else None
    table = ds.dataset(files, schema=schema, format="parquet").to_table(
        columns=names, filter=condition
    )
    return table, cut / DRAWS


def values_of(table: pa.Table, name: str) -> Floats | list[Any]:
    """Return a column. Numbers are an array in which missing values are NaN."""
    column = table.column(name)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.float64)
    values: list[Any] = column.to_pylist()
    return values


def summarise(
    *,
    paths: Sequence[str],
    baselines: Mapping[str, Sequence[Mapping[str, Any]]],
    calibrations: Mapping[str, Mapping[str, Any]],
    labels: Sequence[Sequence[Any]],
    positive: str | None,
    basis: Mapping[str, Any],
) -> dict[str, Any]:
    """Return by revision: rows, counts in the bins of the baseline, quality and its estimate.

    `labels` are [prediction id, row, value].
    """
    result: dict[str, Any] = {}
    for revision in _revisions(paths):
        table, share = read_rows(paths, where=pc.field("revision") == revision)
        bases = [Baseline.from_json(baseline) for baseline in baselines.get(revision, [])]
        counts = {
            base.name: bin_values(base, values_of(table, base.name)).tolist()
            for base in bases
            if base.name in table.column_names
        }
        quality_of, labelled = _quality(paths, revision, labels, positive, Basis.from_json(basis))
        result[revision] = {
            "rows": round(table.num_rows / share),
            "predictions": round(len(pc.unique(table.column("prediction_id"))) / share),
            "sampled": share < 1,
            "latency_ms": _latencies(table),
            "counts": counts,
            "labelled": labelled,
            "quality": quality_of,
            "estimate": _estimate(table, calibrations.get(revision)),
        }
    return result


def _revisions(paths: Sequence[str]) -> list[str]:
    names: set[str] = set()
    for path in paths:
        if Path(path).exists():
            column = pq.read_table(path, columns=["revision"]).column("revision")
            names.update(item for item in pc.unique(column).to_pylist() if item)
    return sorted(names)


def _latencies(table: pa.Table) -> dict[str, float]:
    if not table.num_rows:
        return {}
    took = table.column("latency_us").to_numpy() / 1000
    return {name: float(np.percentile(took, at)) for name, at in (("p50", 50), ("p95", 95))}


def _quality(
    paths: Sequence[str],
    revision: str,
    labels: Sequence[Sequence[Any]],
    positive: str | None,
    basis: Basis,
) -> tuple[quality.Sums | None, int]:
    """Join labels with the predictions they belong to."""
    if not labels:
        return None, 0
    truths = {(column_name[0], int(column_name[1])): column_name[2] for column_name in labels}
    where = (pc.field("revision") == revision) & pc.field("prediction_id").isin(
        sorted({str(column_name[0]) for column_name in labels})
    )
    table, _ = read_rows(paths, where=where, most=10**9)
    if not table.num_rows:
        return None, 0
    keys = list(
        zip(table.column("prediction_id").to_pylist(), table.column("row").to_pylist(), strict=True)
    )
    at = [index for index, key in enumerate(keys) if key in truths]
    if not at:
        return None, 0
    names = [
        column_name.removeprefix(OUT)
        for column_name in table.column_names
        if column_name.startswith(OUT)
    ]
    needed = truth_of.needed(names, basis.task)
    some = table.select([OUT + name for name in needed]).take(pa.array(at)).rename_columns(needed)
    true = [truths[keys[index]] for index in at]
    groups = [keys[index][0] for index in at]
    sums = truth_of.sums_of(some.to_pylist(), true, positive, basis=basis, groups=groups)
    return sums, len(at) if sums is not None else 0


def observe(*, paths: Sequence[str], revision: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return statistics of the outputs of a revision, added to those seen before."""
    where = pc.field("revision") == revision if revision else None
    table, _ = read_rows(paths, where=where, most=_OBSERVED_ROWS)
    names = [name for name in table.column_names if name.startswith(OUT)]
    there = [name for name in names if table.column(name).null_count < table.num_rows]
    outputs = dict(before)
    for name in there[:_MOST_OBSERVED]:
        short = name.removeprefix(OUT)
        outputs[short] = observed(before.get(short), table.column(name).to_pylist())
    return {"outputs": outputs, "names": [name.removeprefix(OUT) for name in there]}


def _estimate(table: pa.Table, calibration: Mapping[str, Any] | None) -> dict[str, Any] | None:
    name = f"{OUT}confidence"
    if name not in table.column_names or not table.num_rows:
        return None
    used = performance_estimate.Calibration(
        confidence=list((calibration or {}).get("confidence", [])),
        share=list((calibration or {}).get("share", [])),
    )
    sure = np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)
    estimate = performance_estimate.estimate_accuracy(sure, used)
    if estimate is None:
        return None
    return {
        "accuracy": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.rows,
        "calibrated": bool(used.confidence),
    }


def windows(
    *,
    paths: Sequence[str],
    revision: str,
    since: str,
    until: str,
    baselines: Sequence[Mapping[str, Any]],
    limits: Mapping[str, Any],
    window_rows: int,
    at_least_s: float,
    at_most_s: float,
) -> list[dict[str, Any]]:
    """Split the predictions in (`since`, `until`] into full windows, and compare each.

    A window is full with `window_rows` rows and `at_least_s` seconds. With less traffic, it is full
    with enough rows after `at_most_s`. The remaining rows wait for more.
    """
    begin, end = datetime.fromisoformat(since), datetime.fromisoformat(until)
    value = (pc.field("revision") == revision) & (pc.field("at") > begin) & (pc.field("at") <= end)
    bases = [Baseline.from_json(difference) for difference in baselines[:_MOST_BASE_NAMES]]
    names = [base.name for base in bases]
    moments, share = read_rows(paths, columns=["at"], where=value)
    if not moments.num_rows:
        return []
    used = DriftThresholds(**limits)
    spans = _spans(
        moments.column("at").sort().to_pylist(),
        begin,
        end,
        rows=max(1, round(window_rows * share)),
        enough=max(1, round(used.enough * share)),
        at_least=timedelta(seconds=at_least_s),
        at_most=timedelta(seconds=at_most_s),
    )
    failures = _failures(paths, value) if spans else []
    result = []
    for first, last in spans:
        inside = (
            (pc.field("revision") == revision) & (pc.field("at") > first) & (pc.field("at") <= last)
        )
        table, _ = read_rows(paths, columns=[*names, "at"], where=inside, most=MOST_ROWS)
        if table.num_rows > _WINDOW_ROWS:
            table = table.slice(0, _WINDOW_ROWS)  # parts are in the order of the draw
        columns = {name: values_of(table, name) for name in names if name in table.column_names}
        differences = compare(bases, columns, used)
        result.append(
            {
                "starts_at": first.isoformat(),
                "ends_at": last.isoformat(),
                "rows": table.num_rows,
                "failed": sum(first < at <= last for at in failures),
                "features": [difference.as_json() for difference in differences],
                "different": [
                    difference.name for difference in differences if difference.verdict == DIFFERENT
                ],
            }
        )
    return result


def _failures(paths: Sequence[str], where: pc.Expression) -> list[datetime]:
    """Return the times of predictions that failed in the model or the server (5xx)."""
    table, _ = read_rows(
        paths,
        columns=["prediction_id", "at"],
        where=where & (pc.field(FAILED) >= 500),
        most=10**9,
        failed=True,
    )
    if not table.num_rows:
        return []
    by_id = dict(
        zip(table.column("prediction_id").to_pylist(), table.column("at").to_pylist(), strict=True)
    )
    return list(by_id.values())


def _spans(
    moments: Sequence[datetime],
    begin: datetime,
    end: datetime,
    *,
    rows: int,
    enough: int,
    at_least: timedelta,
    at_most: timedelta,
) -> list[tuple[datetime, datetime]]:
    spans: list[tuple[datetime, datetime]] = []
    first, count = begin, 0
    opened: datetime | None = None
    for at, timestamp in enumerate(moments):
        opened = opened or timestamp
        count += 1
        # Rows of the same time stay together, so that a window begins where the last one ended.
        if at + 1 < len(moments) and moments[at + 1] == timestamp:
            continue
        if count >= rows and timestamp - opened >= at_least:
            spans.append((first, timestamp))
            first, count, opened = timestamp, 0, None
    if opened is not None and count >= enough and end - opened >= at_most:
        spans.append((first, moments[-1]))
    return spans


def own_ids(*, paths: Sequence[str], requested: Sequence[str]) -> dict[str, str]:
    """Return the prediction of each of the clients' own ids, the latest if there are several."""
    table, _ = read_rows(
        paths,
        columns=["own_id", "prediction_id", "at"],
        where=pc.field("own_id").isin(list(requested)),
        most=10**9,
    )
    if not table.num_rows:
        return {}
    values: defaultdict[str, str] = defaultdict(str)
    for item in table.sort_by("at").to_pylist():
        values[item["own_id"]] = item["prediction_id"]
    return dict(values)


__all__ = ["IN", "OUT", "observe", "own_ids", "read_rows", "summarise", "values_of", "windows"]
