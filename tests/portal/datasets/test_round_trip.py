"""Random tables in files of every format: the page and jobs have the values that were written."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import slipway
from slipway.datasets import dataset
from tests.portal.datasets.agreeing import BothSides, require_agreement
from tests.portal.datasets.random_tables import Format, is_same, tables

# Few, because the time a version may be examined is bounded, also on a busy machine.
_AT_ONCE = 10
_PARTS = 4
_OUT_OF_TIME = "Not read: the other tables used all the time available for a version."
_Tables = list[tuple[Format, Any]]
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def _lists(length: int) -> st.SearchStrategy[_Tables]:
    return st.lists(tables(), min_size=length, max_size=length)


def _round_trip(alice: slipway.Client, project: str, folder: Path, many: _Tables) -> int:
    """Push and compare tables; returns how many of them the portal had no time to read."""
    unread = 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = {f"{chr(ord('a') + at)}{many[at][0].end}": many[at] for at in range(len(many))}
    for name, (format_, table) in files.items():
        (folder / name).write_bytes(format_.write(table))
    version = alice.datasets.push("fuzzed", folder, project=project)
    read = dataset(version.reference, project=project, client=alice)
    assert {table.name for table in read.tables} == set(files)
    for table in read.tables:
        format_, original = files[table.name]
        note(f"{table.name}: {original.schema} {original.to_pydict()}")
        arrow = read.arrow(table.name)
        preview = alice.datasets.preview(
            "fuzzed", version.number or 0, project=project, table=table.name, limit=200
        )
        rows = [row for batch in read.batches(table.name) for row in batch.to_pylist()]
        if table.note == _OUT_OF_TIME:
            unread += 1
        else:
            require_agreement(BothSides(table, preview.rows, arrow, read.pandas(table.name), rows))
        assert arrow.column_names == original.column_names
        for name in original.column_names:
            pairs = zip(
                arrow.column(name).to_pylist(), original.column(name).to_pylist(), strict=True
            )
            for value, written in pairs:
                assert is_same(value, written, format_), (name, value, written)
    return unread


@pytest.mark.thorough
def test_random_tables_are_read_as_they_were_written(
    alice: slipway.Client, project: str, tmp_path: Path
) -> None:
    @settings(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=_CHECKS,
    )
    @given(_lists(_AT_ONCE))
    def check(many: _Tables) -> None:
        # On a busy machine the time of a version may end before its last tables.
        assert _round_trip(alice, project, tmp_path / "data", many) <= 2

    check()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(_PARTS))
def test_two_thousand_random_tables_are_read_as_they_were_written(
    alice: slipway.Client, project: str, tmp_path: Path, part: int
) -> None:
    """The examples of each part are random, so parts of several runs add up."""
    unread = 0

    @settings(
        max_examples=200 // _PARTS,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=_CHECKS,
    )
    @given(_lists(_AT_ONCE))
    def check(many: _Tables) -> None:
        nonlocal unread
        unread += _round_trip(alice, project, tmp_path / "data", many)

    check()
    assert unread <= 10, f"the portal had no time for {unread} of 500 tables of part {part}"
