"""Compressed files, ORC and folders of partitions, on the page and in a job."""

import bz2
import datetime as dt
import decimal
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

import slipway
from slipway import errors
from slipway.datasets import dataset
from tests.portal.datasets.agreeing import BothSides, push_and_read
from tests.portal.datasets.workbooks import at
from tests.turns import asked_all

Place = tuple[slipway.Client, str, Path]


@pytest.fixture
def place(alice: slipway.Client, project: str, tmp_path: Path) -> Place:
    return alice, project, tmp_path / "data"


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


_FORMATS = ("csv", "jsonl")
_FAULTS = ("cut off", "not packed", "bomb")


def _in_turns(values: Sequence[str]) -> list[tuple[str, str]]:
    """Return each packing with one value, the next one of the next, or all in `make test-slow`."""
    if asked_all():
        return list(product(_PACKERS, values))
    return list(zip(_PACKERS, cycle(values), strict=False))


@pytest.mark.parametrize("values", [_FORMATS, _FAULTS])
def test_every_packing_and_every_value_has_a_turn(values: tuple[str, ...]) -> None:
    ends, had = zip(*_in_turns(values), strict=True)
    assert (set(ends), set(had)) == (set(_PACKERS), set(values))


@pytest.mark.thorough
@pytest.mark.parametrize(("end", "form"), _in_turns(_FORMATS))
def test_compressed_files_are_the_tables_that_they_hold(place: Place, end: str, form: str) -> None:
    pack = _PACKERS[end]
    rows = {"zip": [f"{n:05}" for n in range(2_000)], "n": [*range(2_000)]}
    if form == "csv":
        text = b"zip,n\n" + b"".join(b"%05d,%d\n" % (n, n) for n in range(2_000))
        half = text.index(b"01000,")
        # Parallel tools write several streams one after the other.
        packed = pack(text[:half]) + pack(text[half:])
        both = push_and_read(*place, {f"t.csv{end}": packed})
        assert (both.table.format, both.values) == ("csv", rows)
        return
    lines = b"".join(b'{"zip": "%05d", "n": %d}\n' % (n, n) for n in range(2_000))
    both = push_and_read(*place, {f"t-1.jsonl{end}": pack(lines), f"t-2.jsonl{end}": pack(b"")})
    assert (both.table.name, both.values) == (f"t-*.jsonl{end}", rows)


@pytest.mark.parametrize(("end", "fault"), _in_turns(_FAULTS))
def test_compressed_files_that_are_broken_or_bombs_are_refused(
    place: Place, end: str, fault: str
) -> None:
    pack = _PACKERS[end]
    if fault == "cut off":
        content = pack(b"a\n" + b"".join(b"%d\n" % (n * n) for n in range(20_000)))[:-20]
    elif fault == "not packed":
        content = b"a\n1\n"
    else:
        content = pack(b"a\n" + (b"x" * 10_000 + b"\n") * 7_000)
    reason = (
        r"unpacks to more than 200 times its size"
        if fault == "bomb"
        else r"can be unpacked, or it was cut off"
    )
    with pytest.raises(errors.InvalidInput, match=reason):
        push_and_read(*place, {f"t.csv{end}": content})


@pytest.mark.thorough
def test_orc_has_the_types_of_the_file(place: Place) -> None:
    table = pa.table(
        {
            "i8": pa.array([1, -128, None, 127], pa.int8()),
            "large": pa.array([2**63 - 1, None, -(2**63), 0]),
            "price": pa.array([decimal.Decimal("12345678901234567890.12"), None, None, None]),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1969, 1, 1)]),
            "text": ["01234", "", None, "ä"],
            "list": [[1, None], [], None, [3]],
            "part": [{"a": 1}, None, {"a": None}, {"a": 2}],
        }
    )
    sink = io.BytesIO()
    orc.write_table(table, sink, compression="zstd")
    both = push_and_read(*place, {"t.orc": sink.getvalue()})
    assert both.arrow.schema.types == table.schema.types
    assert both.values == table.to_pydict()
    with pytest.raises(errors.InvalidInput, match=r"not ORC that can be read"):
        push_and_read(*place, {"t.orc": sink.getvalue()[:-9]})


@pytest.mark.thorough
def test_times_in_orc_beyond_nanoseconds_are_refused_and_never_wrapped(place: Place) -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"at": pa.array([at(1500, 1, 1)], pa.timestamp("us"))}), sink)
    with pytest.raises(errors.InvalidInput, match=r"out of range"):
        push_and_read(*place, {"t.orc": sink.getvalue()})


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def _csv(table: pa.Table) -> bytes:
    rows = [",".join(table.column_names), *(str(row["x"]) for row in table.to_pylist())]
    return "\n".join(rows).encode()


def _json(table: pa.Table) -> bytes:
    return "\n".join(json.dumps(row) for row in table.to_pylist()).encode()


def _push_tree(place: Place, files: dict[str, bytes], **options: Any) -> BothSides:
    return push_and_read(*place, files, **options)


@pytest.mark.thorough
@pytest.mark.parametrize(("end", "write"), [("parquet", _parquet), ("csv", _csv), ("jsonl", _json)])
def test_folders_of_partitions_are_columns(
    place: Place, end: str, write: Callable[[pa.Table], bytes]
) -> None:
    part = "part-00000-0f0e7d9c-1d9f-4d2c-9a55-aab0c1d2e3f4.c000"
    files = {
        f"year=2025/month=01/city=Graz/{part}.{end}": write(pa.table({"x": [1, 2]})),
        f"year=2025/month=12/city=a%2Fb/{part}.{end}": write(pa.table({"x": [3]})),
        f"year=2026/month=01/city=__HIVE_DEFAULT_PARTITION__/{part}.{end}": write(
            pa.table({"x": [4]})
        ),
    }
    both = _push_tree(place, files)
    assert both.table.name == f"year=*/month=*/city=*/part-*-*.c*.{end}"
    assert both.types == {"x": "int64", "year": "int64", "month": "string", "city": "string"}
    assert both.values == {
        "x": [1, 2, 3, 4],
        "year": [2025, 2025, 2025, 2026],
        "month": ["01", "01", "12", "01"],
        "city": ["Graz", "Graz", "a/b", None],
    }
    assert both.table.table_schema is not None
    assert both.table.table_schema.partitions == ["year", "month", "city"]
    declared = _push_tree(place, files, types={"month": "int8", "year": "string"})
    assert declared.values["month"] == [1, 1, 12, 1]
    assert declared.values["year"] == ["2025", "2025", "2025", "2026"]


@pytest.mark.thorough
def test_partitions_that_do_not_fit_are_refused(place: Place) -> None:
    one = _parquet(pa.table({"x": [1]}))
    with pytest.raises(errors.InvalidInput, match=r"The column x is in the file and in the name"):
        _push_tree(place, {"x=1/a.parquet": one})
    with pytest.raises(errors.InvalidInput, match=r"Two folders of its path name the column y"):
        _push_tree(place, {"y=1/y=2/a.parquet": one})
    with pytest.raises(errors.InvalidInput, match=r"name of its folder: 'b' is not"):
        _push_tree(place, {"y=1/a.parquet": one, "y=b/a.parquet": one}, types={"y": "int64"})
    both = _push_tree(place, {"y=1/a.parquet": one, "y=18446744073709551617/a.parquet": one})
    assert both.values == {"x": [1, 1], "y": ["1", "18446744073709551617"]}


@pytest.mark.thorough
def test_a_torch_dataset_reads_compressed_partitions_by_rows(
    alice: slipway.Client, project: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    folder = tmp_path / "data"
    for year in (2025, 2026):
        (folder / f"year={year}").mkdir(parents=True)
        text = gzip.compress(b"x,label\n1.5,1\n2.5,0\n")
        (folder / f"year={year}" / "rows.csv.gz").write_bytes(text)
    alice.datasets.push("torch", folder, project=project)
    loaded = dataset("torch", project=project, client=alice)

    class Rows(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> object:
            return ((row["x"], row["year"], row["label"]) for row in loaded)

    batches = [
        [part.tolist() for part in batch]
        for batch in torch.utils.data.DataLoader(Rows(), batch_size=2)
    ]
    assert batches == [
        [[1.5, 2.5], [2025, 2025], [1, 0]],
        [[1.5, 2.5], [2026, 2026], [1, 0]],
    ]
