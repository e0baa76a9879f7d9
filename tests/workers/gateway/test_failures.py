"""Predictions that fail are captured like answered ones, with the status they ended with."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.schemas.serving import EndpointLimits
from tests.processes import ROOT, clean_environment
from tests.workers.machines import eventually
from tests.workers.serving import Plane, endpoint
from workers.gateway.capture_log.arrow import SCHEMA
from workers.gateway.capture_log.format import entry, pack_block
from workers.gateway.shipper import merge_hours, ship

_ROW = [[1, 2, 3, 4]]
_LATER = 4_000_000_000.0


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    names = [str(path) for path in folder.glob("*/*/*.parquet")]
    if not names:
        return {}
    columns = ("prediction_id", "revision", "latency_us", "status", "request", "response")
    sql = f"SELECT {', '.join(columns)} FROM read_parquet(?, union_by_name = true)"  # noqa: S608
    result = duckdb.execute(sql, [names])
    entries = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
    return {row["prediction_id"]: row for row in entries}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["on", "strict"])
def test_what_a_model_refuses_and_what_takes_too_long_is_captured_with_its_status(
    served: Plane, mode: str
) -> None:
    revisions = served.portal.snapshot.endpoints[0].revisions
    limits = EndpointLimits(timeout_s=0.5)
    served.portal.serve(endpoint(revisions, limits=limits, capture=mode))
    served.until_in_force()
    good = served.predict(_ROW)
    odd = served.predict([[1, 2, 3]])
    replica = served.processes[0].child.pid
    os.kill(replica, signal.SIGSTOP)
    try:
        late = served.predict(_ROW)
    finally:
        os.kill(replica, signal.SIGCONT)
    assert (good.status, odd.status, late.status) == (200, 400, 504)
    ids = {answer.headers["x-slipway-prediction-id"]: answer.status for answer in (good, odd, late)}

    def kept() -> dict[str, dict[str, Any]] | None:
        captured = _kept(served.predictions_dir)
        return captured if ids.keys() <= captured.keys() else None

    entries = eventually(kept, what="all three are in Parquet")
    assert {name: entries[name]["status"] for name in ids} == ids
    by_status = {entries[name]["status"]: entries[name] for name in ids}
    assert "[1,2,3]" in by_status[400]["request"].replace(" ", "")
    assert by_status[504]["latency_us"] >= 400_000
    # What is said of inputs may repeat them, also those that are to be hidden.
    assert (by_status[400]["response"], by_status[504]["response"]) == ("", "")
    assert {row["revision"] for row in by_status.values()} == {"rev-1"}


@pytest.mark.thorough
def test_nothing_is_captured_where_capture_is_off(served: Plane) -> None:
    revisions = served.portal.snapshot.endpoints[0].revisions
    served.portal.serve(endpoint(revisions, capture="off"))
    served.until_in_force()
    odd = served.predict([[1, 2, 3]])
    served.portal.serve(endpoint(revisions))
    served.until_in_force()
    last = served.predict(_ROW).headers["x-slipway-prediction-id"]
    eventually(lambda: last in _kept(served.predictions_dir), what="the last one is in Parquet")
    assert odd.headers["x-slipway-prediction-id"] not in _kept(served.predictions_dir)


def test_files_from_before_there_was_a_status_are_merged_with_those_that_have_one(
    tmp_path: Path,
) -> None:
    at_ns = 1_700_000_000 * 10**9
    context = orjson.dumps(
        {"endpoint": "ep_1", "revision": "rev_1", "model": "m", "model_version": "1"}
    )
    entries = [
        entry(name, b"key_1", at_ns, 5, b'{"inputs":[[1]]}', b"", 0, 0, 1, 0, status)
        for name, status in ((b"prd_new", 200), (b"prd_failed", 500))
    ]
    segment = tmp_path / "2.seg"
    segment.write_bytes(pack_block(context, entries))
    root = tmp_path / "predictions"
    assert ship(segment, root) == 2
    (path,) = root.glob("*/*/*.parquet")
    old = pa.Table.from_pylist(
        [{"prediction_id": "prd_old"}], schema=SCHEMA.remove(SCHEMA.get_field_index("status"))
    )
    pq.write_table(old, path.with_name("1.parquet"))
    expected = {"prd_old": None, "prd_new": 200, "prd_failed": 500}
    assert {name: row["status"] for name, row in _kept(root).items()} == expected
    assert merge_hours(root, before_unix_s=_LATER) == 1
    assert len(list(root.glob("*/*/*.parquet"))) == 1
    assert {name: row["status"] for name, row in _kept(root).items()} == expected


@pytest.mark.thorough
def test_an_hour_that_is_larger_than_memory_is_merged_a_piece_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "endpoint=ep_1/hour=2023-11-14T22"
    folder.mkdir(parents=True)
    body = "[0.5]" * 2_000
    for file in range(12):
        rows = [
            {"prediction_id": f"prd_{file}_{row}", "request": body, "is_shadow": False}
            for row in range(1_000)
        ]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{file:02d}.parquet")
    code = (
        "import pyarrow as pa, sys\n"
        "from pathlib import Path\n"
        "from workers.gateway.shipper import merge_hours\n"
        f"assert merge_hours(Path(sys.argv[1]), before_unix_s={_LATER}) == 1\n"
        "print(pa.default_memory_pool().max_memory())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=clean_environment() | {"PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (merged,) = folder.glob("*.parquet")
    ids = pq.read_table(merged, columns=["prediction_id"])["prediction_id"].to_pylist()
    assert ids == [f"prd_{file}_{row}" for file in range(12) for row in range(1_000)]
    assert int(done.stdout) < 12_000 * len(body), "less than all of it was ever held"
