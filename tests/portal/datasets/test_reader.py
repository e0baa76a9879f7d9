"""The reader of tables alone: both ways to split CSV give the same rows, whatever is in them."""

import csv
from collections.abc import Callable
from io import BytesIO, StringIO
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.schemas.datasets import TableProblem
from slipway.schemas.tables import MAX_ROW_BYTES, ReadSettings
from slipway.tables import TableReader, text_files
from slipway.tables.csv_files import CsvFile
from slipway.tables.errors import Unreadable
from slipway.tables.text_values import is_exact

_AS_TEXT = ReadSettings(missing=[])
_CELLS = st.text(st.sampled_from("ab1é \",;\n\t'0.-"), max_size=6)


def read(
    content: bytes, *, kind: str = "csv", **options: Any
) -> tuple[pa.Table, list[TableProblem]]:
    """Read one file as both sides do: again with its schema where the first pass was not enough."""
    chosen, schema = ReadSettings(**options), None
    while True:
        problems: list[TableProblem] = []
        reader = TableReader(chosen, schema=schema, on_problem=problems.append)
        batches = list(reader.read(BytesIO(content), path=f"t.{kind}", format=kind))
        schema = reader.schema()
        if not reader.is_stale:
            return pa.Table.from_batches(batches, reader.arrow_schema), problems


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=30),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_a_writer_of_csv_wrote_is_read_exactly(
    rows: list[tuple[str, str]], quoting: Any, end: str
) -> None:
    written = StringIO(newline="")
    writer = csv.writer(written, quoting=quoting, lineterminator=end)
    writer.writerows([("x", "y"), *rows])
    table, problems = read(
        written.getvalue().encode(), types={"x": "string", "y": "string"}, missing=[], separator=","
    )
    assert problems == []
    assert list(zip(*table.to_pydict().values(), strict=True)) == rows


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(
        st.text(st.sampled_from('ab1é ",\r'), min_size=1, max_size=12), min_size=1, max_size=20
    ),
    chunk=st.sampled_from([7, 31, 1024]),
)
def test_blocks_that_arrow_splits_are_those_of_the_standard_library(
    lines: list[str], chunk: int
) -> None:
    content = "\n".join(["x,y", *lines]).encode()

    def split(change: Callable[[CsvFile], None]) -> list[tuple[Any, ...]]:
        records: list[tuple[Any, ...]] = []
        try:
            file = CsvFile(
                BytesIO(content),
                path="t.csv",
                settings=_AS_TEXT,
                on_bad_row=lambda *bad: records.append(bad),
            )
            change(file)
            for batch in file.batches():
                columns = [column.to_pylist() for column in batch.columns]
                rows = zip(*columns, strict=True)
                records += [(batch.line_of(at), *row) for at, row in enumerate(rows)]
        except Unreadable as error:
            records.append((type(error).__name__, str(error)))
        return sorted(records, key=repr)

    def by_library_alone(file: CsvFile) -> None:
        file._plain_until = lambda data, *, is_end: None  # type: ignore[method-assign]

    before = text_files.CHUNK_BYTES
    try:
        text_files.CHUNK_BYTES = chunk
        assert split(lambda file: None) == split(by_library_alone)
    finally:
        text_files.CHUNK_BYTES = before


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_exact_however_it_was_printed(number: float) -> None:
    assert is_exact(repr(number))
    assert is_exact(f"{number:.17e}")
    assert is_exact(f"{number:.20f}") or abs(number) < 1e-3


@pytest.mark.parametrize(
    "text",
    ["9007199254740993", "12345678901234567.89", "1e400", "1e-400", "0.12345678901234567890"],
)
def test_a_number_that_a_double_rounds_is_not_exact(text: str) -> None:
    assert not is_exact(text)


def test_a_row_beyond_the_limit_is_refused_with_its_line() -> None:
    for name, content in (
        ("csv", b"id,image\n1,x\n2," + b"x" * (MAX_ROW_BYTES + 8 * 1024**2) + b"\n"),
        ("jsonl", b'{"a": 1}\n{"a": 2}\n{"a": "' + b"x" * (MAX_ROW_BYTES + 8 * 1024**2) + b'"}\n'),
    ):
        _table, problems = read(content, kind=name)
        assert [
            (problem.line, "longer than 32 MiB" in problem.message) for problem in problems
        ] == [(3, True)]


def test_a_line_is_named_also_after_blank_lines_and_line_breaks_in_values() -> None:
    content = b'x,y\n1,a\n\n2,"b\nc"\nx,d\n3,e\n'
    table, problems = read(content, types={"x": "int64"})
    assert [(problem.line, problem.column) for problem in problems] == [(6, "x")]
    assert table.to_pydict() == {"x": [1, 2, 3], "y": ["a", "b\nc", "e"]}


def test_values_of_later_batches_are_compared_with_all_of_before() -> None:
    content = b"x\n" + b"9007199254740993\n" * 10_000 + b"1\n" * 10_000 + b"0.5\n"
    table, problems = read(content)
    assert (str(table.schema.field("x").type), table.num_rows) == ("int64", 20_000)
    assert [problem.line for problem in problems] == [20_002]


def test_a_column_that_is_empty_at_first_gets_the_type_of_its_first_values() -> None:
    table, problems = read(b"x,y\n" + b"NA,1\n" * 12_000 + b"5,1\n")
    assert (problems, str(table.schema.field("x").type)) == ([], "int64")
    assert table["x"].null_count == 12_000
    table, _problems = read(b"x,y\n" + b"NA,1\n" * 12_000)
    assert table["x"].to_pylist()[:2] == ["NA", "NA"]
