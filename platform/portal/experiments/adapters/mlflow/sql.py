"""Conditions on runs as SQL, for SQLite and PostgreSQL alike.

The table of runs is called `r` in every statement. No part of a filter is ever in the text of a
statement: keys and values are parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from portal.experiments.filters import FieldKind, FilterCondition, RunField
from portal.experiments.models.tables import DATABASE

# Number of leading characters of a value in the indexes, see `indexes`.
PREFIX = 64
LARGEST = 1.7976931348623157e308
Row = tuple[Any, ...]
_TABLES = {
    FieldKind.METRIC: "latest_metrics",
    FieldKind.PARAM: "params",
    FieldKind.TAG: "tags",
}
_COLUMNS = {
    "start_time": "r.start_time",
    "end_time": "r.end_time",
    "run_id": "r.run_uuid",
    "run_name": "r.name",
    "status": "r.status",
    "user_id": "r.user_id",
    "artifact_uri": "r.artifact_uri",
}


@dataclass
class SqlConditions:
    """Conditions that must all hold, with their parameters."""

    terms: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, term: str, *values: Any) -> None:
        """Add a condition."""
        self.terms.append(term)
        self.values.extend(values)

    @property
    def text(self) -> str:
        """The condition as one."""
        return " AND ".join(self.terms) or "1 = 1"


def is_sqlite() -> bool:
    """Return True if MLflow's tables are in SQLite."""
    return connections[DATABASE].vendor == "sqlite"


def rows(statement: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return the rows of a query."""
    with connections[DATABASE].cursor() as cursor:
        cursor.execute(statement, list(values))
        return list(cursor.fetchall())


def change(statement: str, values: Sequence[Any] = ()) -> int:
    """Run a statement that changes rows and return their number."""
    with connections[DATABASE].cursor() as cursor:
        cursor.execute(statement, list(values))
        return max(0, int(cursor.rowcount))


def marks(values: Sequence[Any]) -> str:
    """Return as many placeholders as there are values. There must be some."""
    return ", ".join(["%s"] * len(values))


def column_of(attribute: str) -> str:
    """Return the column of an attribute of runs."""
    return _COLUMNS[attribute]


def table_of(kind: FieldKind) -> str:
    """Return the table of metrics, parameters or tags."""
    return _TABLES[kind]


def like_condition(column: str, pattern: str, *, ignores_case: bool) -> tuple[str, str]:
    """Return a comparison with a pattern of `%` and `_`, and its parameter."""
    if not is_sqlite():
        return f"{column} {'ILIKE' if ignores_case else 'LIKE'} %s", pattern
    if ignores_case:
        return f"{column} LIKE %s", pattern
    # SQLite's LIKE ignores case. GLOB does not, but has another syntax for patterns.
    glob = "".join({"%": "*", "_": "?"}.get(c, f"[{c}]" if c in "*?[" else c) for c in pattern)
    return f"{column} GLOB %s", glob


def _text_test(column: str, comparison: FilterCondition) -> tuple[str, list[Any]]:
    """Return the test of a text column."""
    operator, value = comparison.operator, comparison.value
    if isinstance(value, tuple):
        return f"{column} {operator.upper()} ({marks(value)})", list(value)
    if operator in ("like", "ilike"):
        test, pattern = like_condition(column, str(value), ignores_case=operator == "ilike")
        return test, [pattern]
    return f"{column} {operator} %s", [value]


def add_comparison(where: SqlConditions, comparison: FilterCondition) -> None:
    """Add one condition of a filter, tested for each run."""
    kind = comparison.field.kind
    if kind is FieldKind.ATTRIBUTE:
        _add_attribute(where, comparison)
    elif kind is FieldKind.DATASET:
        _add_dataset(where, comparison)
    else:
        _add_logged(where, comparison)


def word_test_of_run(word: str) -> tuple[str, list[Any]]:
    """Return the test that a word is in the name or the person of a run, or begins its id."""
    like, escaped = _like(word)
    test = f"r.run_uuid LIKE %s ESCAPE '\\' OR r.name {like} OR r.user_id {like}"
    return test, [f"{escaped.lower()}%", *[f"%{escaped}%"] * 2]


def word_test_of_values(word: str) -> tuple[str, list[Any]]:
    """Return the test that a word is in the name or value of a tag or parameter, called `v`."""
    like, escaped = _like(word)
    return f"(v.key {like} OR v.value {like})", [f"%{escaped}%"] * 2


def _like(word: str) -> tuple[str, str]:
    """Return a comparison that ignores case, and the word with its wildcards escaped."""
    escaped = "".join(f"\\{c}" if c in "\\%_" else c for c in word)
    return f"{'LIKE' if is_sqlite() else 'ILIKE'} %s ESCAPE '\\'", escaped


def _add_attribute(where: SqlConditions, comparison: FilterCondition) -> None:
    column = column_of(comparison.field.key)
    if comparison.field.is_number:
        where.add(f"{column} {comparison.operator} %s", comparison.value)
        return
    test, values = _text_test(column, comparison)
    where.add(test, *values)


def _add_dataset(where: SqlConditions, comparison: FilterCondition) -> None:
    joined = (
        "SELECT 1 FROM inputs i JOIN datasets d ON d.dataset_uuid = i.source_id "
        "WHERE i.destination_type = 'RUN' AND i.destination_id = r.run_uuid "
        "AND i.source_type = 'DATASET'"
    )
    if comparison.field.key == "context":
        test, values = _text_test("t.value", comparison)
        tags = "SELECT 1 FROM input_tags t WHERE t.input_uuid = i.input_uuid"
        where.add(f"EXISTS ({joined} AND EXISTS ({tags} AND t.name = %s AND {test}))")
        where.values += ["mlflow.data.context", *values]
        return
    test, values = _text_test(f"d.{comparison.field.key}", comparison)
    where.add(f"EXISTS ({joined} AND {test})", *values)


def _add_logged(where: SqlConditions, comparison: FilterCondition) -> None:
    table = table_of(comparison.field.kind)
    here = f"SELECT 1 FROM {table} v WHERE v.key = %s AND v.run_uuid = r.run_uuid"
    if comparison.value is None:
        negated = "NOT " if comparison.operator == "is null" else ""
        where.add(f"{negated}EXISTS ({here})", comparison.field.key)
        return
    test, values = value_test(comparison)
    where.add(f"EXISTS ({here} AND {test})", comparison.field.key, *values)


def value_test(comparison: FilterCondition) -> tuple[str, list[Any]]:
    """Return the test of the value of a metric, parameter or tag in its own table, called `v`."""
    if comparison.field.kind is not FieldKind.METRIC:
        return _text_test("v.value", comparison)
    if comparison.operator == "!=":
        return "(v.value != %s OR v.is_nan)", [comparison.value]
    return f"v.value {comparison.operator} %s AND NOT v.is_nan", [comparison.value]


def indexed_test(comparison: FilterCondition) -> tuple[str, list[Any]] | None:
    """Return the test in a form that an index answers, or None where none does."""
    if comparison.value is None or comparison.field.kind not in _TABLES:
        return None
    test, values = value_test(comparison)
    if comparison.field.kind is FieldKind.METRIC:
        return None if comparison.operator == "!=" else (test, values)
    prefix = f"substr(v.value, 1, {PREFIX})"
    if comparison.operator == "=":
        # Of a plain column that equals a constant, SQLite puts the constant into `prefix`, too, and
        # then reads every value of the key.
        test = "v.value || '' = %s"
        return f"{prefix} = %s AND {test}", [str(comparison.value)[:PREFIX], *values]
    if comparison.operator == "in" and isinstance(comparison.value, tuple):
        cut = [value[:PREFIX] for value in comparison.value]
        return f"{prefix} IN ({marks(cut)}) AND {test}", [*cut, *values]
    return None


def number_of(value: float, *, is_nan: bool) -> float:
    """Return the number that was logged, from the stored value: NaN, ±inf or finite."""
    if is_nan:
        return float("nan")
    if value >= LARGEST:
        return float("inf")
    return float("-inf") if value <= -LARGEST else float(value)


def order_expression(order: RunField) -> str:
    """Return what runs with a logged value are sorted by. The table is called `v`."""
    if order.kind is FieldKind.METRIC:
        return "v.value"
    return f"substr(v.value, 1, {PREFIX})"
