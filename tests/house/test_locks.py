"""Rows are locked so that others may still write rows that name them.

PostgreSQL looks, as a transaction ends, at every row that a new row names, and waits for whoever
has locked it with a plain FOR UPDATE. If that one waits for something else the new row's
transaction holds, one of them is ended as a deadlock. FOR NO KEY UPDATE keeps out all others who
lock or change a row, and lets it be named; only who deletes a row needs more.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.house.sources import functions, modules


def heavy_locks(module: ast.Module) -> Iterator[int]:
    """Find the lines that lock rows with FOR UPDATE, in functions that delete none."""
    for function in functions(module):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
        if "delete" not in names:
            yield from (call.lineno for call in calls if _is_heavy(call))


def _is_heavy(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "select_for_update"
        and all(keyword.arg != "no_key" for keyword in call.keywords)
    )


def test_only_who_deletes_a_row_forbids_others_to_name_it() -> None:
    faults = [
        f"{name}:{line}"
        for name, module in modules().items()
        if name.startswith("platform/")
        for line in heavy_locks(module)
    ]
    assert not faults, "say no_key=True"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("Row.objects.select_for_update().get(pk=1)", 1),
        ("Row.objects.select_for_update(of=('self',)).get(pk=1)", 1),
        ("Row.objects.select_for_update(no_key=True).get(pk=1)", 0),
        ("Row.objects.select_for_update().get(pk=1).delete()", 0),
    ],
)
def test_a_lock_that_is_too_heavy_is_found(body: str, count: int) -> None:
    assert len(list(heavy_locks(ast.parse(f"def act():\n    {body}\n")))) == count
