"""Predictions selected as a dataset have the types of the signature, and the values as sent."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from portal.datasets.bytes import content_of, entries_of
from portal.datasets.models import Version
from portal.endpoints.models import Revision
from portal.monitoring.exports_and_erasure import run_pending
from tests.portal.monitoring.captured import Traffic

_COLUMNS = {
    "customer_id": "INT64",
    "zip": "BYTES",
    "amount": "FP64",
    "is_new": "BOOL",
    "visits": "INT32",
}


def _declare(traffic: Traffic) -> None:
    inputs = [
        {"name": name, "datatype": kind, "shape": [-1], "required": True}
        for name, kind in _COLUMNS.items()
    ]
    signature = {"kind": "columns", "inputs": inputs, "outputs": [], "params": []}
    Revision.objects.filter(pk=traffic.revision_id).update(signature=signature)


def _selected(traffic: Traffic, folder: Path, dataset: str) -> Any:
    traffic.post("selections", {"dataset": dataset, "only_labelled": False}, status=202)
    run_pending()
    assert traffic.get("selections")["items"][0]["reason"] == ""
    version = Version.objects.get(dataset__name=dataset)
    file = folder / "predictions.parquet"
    file.write_bytes(b"".join(content_of(entries_of(version, "predictions.parquet"))))
    return pq.read_table(file).sort_by("customer_id")


@pytest.mark.thorough
def test_long_ids_booleans_text_and_labels_are_exact(traffic: Traffic, tmp_path: Path) -> None:
    _declare(traffic)
    note = "x" * 5_000
    rows = [
        {
            "customer_id": 2**53 + 1 + 2 * at,
            "zip": f"{at:05d}",
            "amount": 1 if at else 0.1,
            "is_new": at % 2 == 0 if at else None,
            "visits": at,
            "at": "2024-03-31T01:30:00+02:00",
            "note": note,
        }
        for at in range(3)
    ]
    ids = traffic.capture(
        [{"dataframe_records": [row]} for row in rows], [{"predictions": [True]}] * 3
    )
    body = b"customer_id,zip,amount,is_new,visits,at,note\n9007199254740999,00007,2.5,true,7,"
    ids += traffic.capture([body + b"2024-03-31T01:30:00+02:00,n\n"], [{"predictions": [False]}])
    traffic.look()
    labels = [{"prediction_id": ids[0], "value": 1}, {"prediction_id": ids[3], "value": "false"}]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    table = _selected(traffic, tmp_path, "customers")
    types = {name: table.schema.field(name).type for name in (*_COLUMNS, "at", "label")}
    assert types == {
        "customer_id": pa.int64(),
        "zip": pa.string(),
        "amount": pa.float64(),
        "is_new": pa.bool_(),
        "visits": pa.int32(),
        "at": pa.timestamp("us", tz="UTC"),
        "label": pa.bool_(),
    }
    assert table["customer_id"].to_pylist() == [2**53 + 1, 2**53 + 3, 2**53 + 5, 2**53 + 7]
    assert table["zip"].to_pylist() == ["00000", "00001", "00002", "00007"]
    assert table["is_new"].to_pylist() == [None, False, True, True]
    assert table["amount"].to_pylist() == [0.1, 1.0, 1.0, 2.5]
    assert table["at"].to_pylist() == [datetime(2024, 3, 30, 23, 30, tzinfo=UTC)] * 4
    assert table["note"].to_pylist()[0] == note
    assert table["label"].to_pylist() == [True, None, None, False]
