"""Pages of runs: which, in what order, with which values.

Two ways lead to the runs that match. When a condition is met by few values of its key, the index on
values names them. Otherwise runs are scanned in the order of the list, and enough match soon. The
index tells which it is, by counting no further than `FEW`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from portal.core.errors import InvalidInput
from portal.core.pagination import decode_cursor, encode_cursor
from portal.core.text import whole_characters
from portal.experiments.adapters.mlflow.sql import (
    Row,
    SqlConditions,
    add_comparison,
    column_of,
    indexed_test,
    marks,
    number_of,
    order_expression,
    rows,
    table_of,
    word_test_of_run,
    word_test_of_values,
)
from portal.experiments.filters import FieldKind, FilterCondition, RunField
from portal.experiments.ports import RunFacts, RunPage, RunSearch, SortOrder, Stage

FEW = 2_000
_WORD_TABLES = (table_of(FieldKind.PARAM), table_of(FieldKind.TAG))
_BEGAN = "r.start_time"
_EXPERIMENT = "r.experiment_id IN ("
COLUMNS = (
    "r.run_uuid, r.experiment_id, r.name, r.status, r.lifecycle_stage, r.user_id, "
    "r.start_time, r.end_time"
)
_Cursor = tuple[int, float | str, str]


def experiments_of(run_search: RunSearch) -> list[int]:
    """Return the ids of the project's experiments that were asked for, of the project alone."""
    sql_conditions = SqlConditions()
    sql_conditions.add("workspace = %s", run_search.project_id)
    if run_search.experiment_ids:
        sql_conditions.add(
            f"experiment_id IN ({marks(run_search.experiment_ids)})", *run_search.experiment_ids
        )
    elif run_search.stage is Stage.ACTIVE:
        sql_conditions.add("lifecycle_stage = 'active'")
    listed = rows(
        f"SELECT experiment_id FROM experiments WHERE {sql_conditions.text}", sql_conditions.values
    )
    return [row[0] for row in listed]


def search_conditions(run_search: RunSearch, experiments: Sequence[int]) -> SqlConditions:
    """Return the conditions of a search, in the way its filter is best answered."""
    where = SqlConditions()
    where.add(f"{_EXPERIMENT}{marks(experiments)})", *experiments)
    where.add("r.lifecycle_stage = %s", run_search.stage.value)
    in_list = SqlConditions([*where.terms], [*where.values])
    add_conditions(where, run_search.conditions)
    for word in run_search.words:
        _add_word(where, word, in_list)
    return where


def _add_word(where: SqlConditions, word: str, in_list: SqlConditions) -> None:
    """Add that a word is in a run, or in a tag or parameter of it.

    Values that hold the word are listed first, if there are few of them. Otherwise enough runs
    match soon, and each is tested in the order of the list.
    """
    of_run, values = word_test_of_run(word)
    of_values, logged_values = word_test_of_values(word)
    many = rows(
        f"SELECT 1 FROM runs r WHERE {in_list.text} AND ({of_run}) LIMIT {FEW + 1}",
        [*in_list.values, *values],
    )
    listed = " UNION ALL ".join(
        f"SELECT v.run_uuid FROM {table} v WHERE {of_values}" for table in _WORD_TABLES
    )
    records: list[Row] = []
    if len(many) <= FEW:
        records = rows(f"{listed} LIMIT {FEW + 1}", logged_values * len(_WORD_TABLES))
    if len(many) <= FEW and len(records) <= FEW:
        ids = sorted({row[0] for row in records})
        named = f" OR r.run_uuid IN ({marks(ids)})" if ids else ""
        where.add(f"({of_run}{named})", *values, *ids)
        return
    tested = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} v WHERE v.run_uuid = r.run_uuid AND {of_values})"
        for table in _WORD_TABLES
    )
    where.add(f"({of_run} OR {tested})", *values, *logged_values * len(_WORD_TABLES))


def add_conditions(where: SqlConditions, conditions: Sequence[FilterCondition]) -> None:
    """Add the conditions of a filter, each in the way it is best answered."""
    named: set[str] | None = None
    for comparison in conditions:
        few = _few_matching_runs(comparison)
        if few is None:
            add_comparison(where, comparison)
        else:
            named = few if named is None else named & few
    if named:
        # Force the index of ids: without statistics, SQLite would scan all runs of the experiment
        # in the order of the list. A unary plus disables the other index and changes nothing else.
        where.terms = [f"+{it}" if it.startswith(_EXPERIMENT) else it for it in where.terms]
        where.add(f"r.run_uuid IN ({marks(sorted(named))})", *sorted(named))
    elif named is not None:
        where.add("1 = 0")


def _few_matching_runs(comparison: FilterCondition) -> set[str] | None:
    """Return the runs, of whichever project, that meet a condition, or None if they are many."""
    test = indexed_test(comparison)
    if test is None:
        return None
    records = rows(
        f"SELECT v.run_uuid FROM {table_of(comparison.field.kind)} v "
        f"WHERE v.key = %s AND {test[0]} LIMIT {FEW + 1}",
        [comparison.field.key, *test[1]],
    )
    return {row[0] for row in records} if len(records) <= FEW else None


def page_of(run_search: RunSearch) -> RunPage:
    """Return one page of runs with the values of the columns that were asked for."""
    experiments = experiments_of(run_search)
    if not experiments:
        return RunPage([], None)
    where = search_conditions(run_search, experiments)
    cursor = _read(run_search.cursor)
    if run_search.order.field.kind is FieldKind.ATTRIBUTE:
        records, following = _by_attribute(where, run_search.order, run_search.limit, cursor)
    else:
        records, following = _by_logged(where, run_search.order, run_search.limit, cursor)
    items = with_columns([run_facts(row) for row in records], run_search.columns)
    return RunPage(items, following)


def run_facts(row: Row) -> RunFacts:
    """Return a run from its row of COLUMNS."""
    return RunFacts(
        id=row[0],
        experiment_id=row[1],
        name=row[2] or "",
        status=row[3] or "",
        stage=Stage(row[4] or "active"),
        user=row[5] or "",
        started_ms=row[6],
        ended_ms=row[7],
    )


def _by_attribute(
    where: SqlConditions, order: SortOrder, limit: int, cursor: _Cursor | None
) -> tuple[list[Row], str | None]:
    """Return runs by a column of their own. Those without a value sort as empty or 0."""
    column = column_of(order.field.key)
    if order.field.key != "start_time":
        column = f"coalesce({column}, {'0' if order.field.is_number else chr(39) * 2})"
    sorting = _Sorting(column, "r.run_uuid", order.descending)
    start = f"SELECT {COLUMNS}, {column} FROM runs r"
    return _cut(sorting.listed(start, sorting.beyond(where, cursor), limit), limit, segment=0)


def _by_logged(
    where: SqlConditions, order: SortOrder, limit: int, cursor: _Cursor | None
) -> tuple[list[Row], str | None]:
    """Return runs by a logged value, then those that have none, the newest first."""
    column, table, key = order_expression(order.field), table_of(order.field.kind), order.field.key
    number = " AND NOT v.is_nan" if order.field.kind is FieldKind.METRIC else ""
    records: list[Row] = []
    if cursor is None or cursor[0] == 0:
        having = SqlConditions([f"v.key = %s{number}", *where.terms], [key, *where.values])
        sorting = _Sorting(column, "v.run_uuid", order.descending)
        start = f"SELECT {COLUMNS}, {column} FROM {table} v JOIN runs r ON r.run_uuid = v.run_uuid"
        records = sorting.listed(start, sorting.beyond(having, cursor), limit)
        if len(records) > limit:
            return _cut(records, limit, segment=0)
        cursor = None
    lacking = f"SELECT 1 FROM {table} v WHERE v.key = %s AND v.run_uuid = r.run_uuid{number}"
    rest = SqlConditions([*where.terms, f"NOT EXISTS ({lacking})"], [*where.values, key])
    newest = _Sorting(_BEGAN, "r.run_uuid", descending=True)
    start = f"SELECT {COLUMNS}, {_BEGAN} FROM runs r"
    more = newest.listed(start, newest.beyond(rest, cursor), limit - len(records))
    room = limit - len(records)
    if room == 0 and more:
        return records, _cursor((0, records[-1][-1], records[-1][0]))
    taken, following = _cut(more, room, segment=1)
    return [*records, *taken], following


@dataclass(frozen=True)
class _Sorting:
    """Rows in the order of a column, and of `key` where that is the same.

    Of runs that began together the index holds the lower id first.
    """

    column: str
    key: str
    descending: bool

    @property
    def key_descends(self) -> bool:
        return self.descending != (self.column == _BEGAN)

    @property
    def text(self) -> str:
        way, key_way = ("DESC" if it else "ASC" for it in (self.descending, self.key_descends))
        return f"ORDER BY {self.column} {way}, {self.key} {key_way}"

    def beyond(self, where: SqlConditions, cursor: _Cursor | None) -> SqlConditions:
        """Return the conditions and that rows follow the last one of the page before."""
        if cursor is None:
            return where
        after, key_after = ("<" if way else ">" for way in (self.descending, self.key_descends))
        added = SqlConditions([*where.terms], [*where.values])
        added.add(f"{self.column} {after}= %s", cursor[1])
        added.add(f"({self.column} {after} %s OR {self.key} {key_after} %s)", cursor[1], cursor[2])
        return added

    def listed(self, start: str, where: SqlConditions, limit: int) -> list[Row]:
        """Return one row more than `limit`, if there is one."""
        return rows(f"{start} WHERE {where.text} {self.text} LIMIT {limit + 1}", where.values)


def _cut(records: list[Row], limit: int, *, segment: int) -> tuple[list[Row], str | None]:
    if len(records) <= limit:
        return records, None
    last = records[limit - 1]
    return records[:limit], _cursor((segment, last[-1], last[0]))


def _cursor(place: tuple[int, Any, str]) -> str:
    return encode_cursor(json.dumps(place))


def _read(cursor: str | None) -> _Cursor | None:
    if not cursor:
        return None
    try:
        segment, value, run_id = json.loads(decode_cursor(cursor))
    except (ValueError, TypeError) as error:
        raise _bad_cursor() from error
    known = segment in (0, 1) and isinstance(value, str | int | float) and isinstance(run_id, str)
    text = f"{value}{run_id}"
    if not known or "\0" in text or text != whole_characters(text):
        raise _bad_cursor()
    return segment, value, run_id


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        "This cursor is not valid.",
        code="invalid_cursor",
        field="cursor",
        next_step="Leave the cursor out to start from the first page.",
    )


def with_columns(items: Sequence[RunFacts], columns: Sequence[RunField] | None) -> list[RunFacts]:
    """Return the runs with the values of these fields, or of all, in three queries at most."""
    values: dict[FieldKind, dict[str, dict[str, Any]]] = {}
    ids = [run.id for run in items]
    for kind in (FieldKind.METRIC, FieldKind.PARAM, FieldKind.TAG):
        if columns is None:
            values[kind] = logged_of(kind, ids)
            continue
        keys = [column.key for column in columns if column.kind is kind]
        values[kind] = logged_of(kind, ids, keys) if keys else {}
    return [
        replace(
            run,
            metrics=values[FieldKind.METRIC].get(run.id, {}),
            params=values[FieldKind.PARAM].get(run.id, {}),
            tags=values[FieldKind.TAG].get(run.id, {}),
        )
        for run in items
    ]


def logged_of(
    kind: FieldKind, run_ids: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return by run what was logged under these keys, or under all when `keys` is None."""
    if not run_ids:
        return {}
    where = SqlConditions()
    where.add(f"v.run_uuid IN ({marks(run_ids)})", *run_ids)
    if keys is not None:
        where.add(f"v.key IN ({marks(keys)})", *keys)
    is_metric = kind is FieldKind.METRIC
    extra = ", v.is_nan" if is_metric else ""
    listed = rows(
        f"SELECT v.run_uuid, v.key, v.value{extra} FROM {table_of(kind)} v "
        f"WHERE {where.text} ORDER BY v.key",
        where.values,
    )
    logged: dict[str, dict[str, Any]] = {}
    for row in listed:
        value = number_of(row[2], is_nan=bool(row[3])) if is_metric else row[2] or ""
        logged.setdefault(row[0], {})[row[1]] = value
    return logged
