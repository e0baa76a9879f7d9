"""Queries of captured predictions in Parquet, by DuckDB, with bounded memory and threads.

User input that becomes SQL (columns, operators) is taken from lists, and values are parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from portal.monitoring.cpu_priority import lower_thread_priority
from slipway.schemas.truncation import shorten

MEMORY = "512MB"
_THREADS = 2
_STEP_BACK = 10
# Two threads buffer 2,048 values of each, which are texts of up to 1,000 characters.
COLUMNS_AT_ONCE = 64
_FILES = "read_parquet(?, union_by_name = true, hive_partitioning = false)"
FAILED = "failed_status"
FALLBACK = "is_fallback"
ANSWERED, ALL_FAILED, ANY = "answered", "failed", "any"
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
Row = dict[str, Any]
T = TypeVar("T")


class FileReplaced(Exception):
    """A file was replaced while it was read. Retry with the present list of files."""


class QueryTooLarge(Exception):
    """A query needs more memory than the limit. A smaller one may succeed."""


class Flat:
    """The flat files of a time range. Parameters are stored beside the SQL they belong to."""

    def __init__(self, connection: Any, paths: Sequence[str]) -> None:
        self._connection = connection
        self._from = _FILES
        self._paths = [path for path in paths if Path(path).exists()]
        self.columns: dict[str, str] = {}
        self._share = 1.0
        self.total = 0
        if self._paths:
            self.columns = self._columns_of(self._paths)
            later = {FAILED: "SMALLINT", FALLBACK: "BOOLEAN"}
            missing = {name: kind for name, kind in later.items() if name not in self.columns}
            if missing:
                # All files were written before these columns existed.
                self.columns |= missing
                self._from = self._with_all_columns(self._paths)

    def _columns_of(self, paths: Sequence[str]) -> dict[str, str]:
        rows = self._query(f"DESCRIBE SELECT * FROM {_FILES}", [paths])  # noqa: S608
        return {row["column_name"]: row["column_type"] for row in rows}

    def _with_all_columns(self, paths: Sequence[str]) -> str:
        """Return these files as a table that has every column of all files."""
        there = self._columns_of(paths)
        more = "".join(
            f", CAST(NULL AS {kind}) AS {quoted(name)}"
            for name, kind in self.columns.items()
            if name not in there
        )
        return f"(SELECT *{more} FROM {_FILES})"  # noqa: S608

    def _query(self, sql: str, values: list[Any]) -> list[Row]:
        duckdb = import_module("duckdb")
        try:
            cursor = self._connection.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.IOException as error:
            raise FileReplaced(shorten(str(error), 200)) from error
        except duckdb.OutOfMemoryException as error:
            raise QueryTooLarge(shorten(str(error), 200)) from error

    def _query_some(self, sql: str, paths: Sequence[str], values: list[Any]) -> list[Row]:
        """Query some of the files, which may all lack a column that others have."""
        try:
            return self._query(sql, [paths, *values])
        except import_module("duckdb").BinderException:
            return self._query(
                sql.replace(self._from, self._with_all_columns(paths)), [paths, *values]
            )

    def find(
        self, where: "ParquetConditions", *, limit: int, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """Return rows, newest first. Files are in the order of hours, the newest first.

        A few hours are queried first, then more, so that recent matches return quickly.
        """
        rows: list[Row] = []
        if where.is_impossible(self.columns):
            return rows
        names = [column for column in columns or self.columns if column in self.columns]
        for paths in self._growing():
            if len(names) <= COLUMNS_AT_ONCE:
                rows += self._find_newest(names, where, paths, limit - len(rows))
            else:
                rows += self._newest_wide(names, where, paths, limit - len(rows))
            if len(rows) >= limit:
                break
        for row in rows:
            if "at" in row:
                row["at"] = datetime.fromtimestamp(row["at"] / 1_000_000, tz=UTC)
        return rows

    def _find_newest(
        self, names: Sequence[str], where: "ParquetConditions", paths: Sequence[str], limit: int
    ) -> list[Row]:
        sql = (
            f"SELECT {_select_list(names)} FROM {self._from} WHERE {where.text} "  # noqa: S608
            'ORDER BY epoch_us("at") DESC, prediction_id DESC, "row" LIMIT ?'
        )
        return self._query_some(sql, paths, [*where.values, limit])

    def _newest_wide(
        self, names: Sequence[str], where: "ParquetConditions", paths: Sequence[str], limit: int
    ) -> list[Row]:
        """Find the matching rows, then read their files a few columns at a time.

        With thousands of columns the buffers alone exceed the memory limit.
        """
        keys = self._find_newest(["prediction_id", "row"], where, paths, limit)
        places = {(key["prediction_id"], key["row"]): at for at, key in enumerate(keys)}
        rows: list[Row] = [{} for _ in keys]
        for path in paths if keys else ():
            held = ParquetConditions(ANY).rows_among(sorted(places))
            there = self._columns_of([path])
            chosen = [name for name in names if name in there]
            for start in range(0, len(chosen), COLUMNS_AT_ONCE):
                some = dict.fromkeys(
                    ["prediction_id", "row", *chosen[start : start + COLUMNS_AT_ONCE]]
                )
                sql = f"SELECT {_select_list(list(some))} FROM {_FILES} WHERE {held.text}"  # noqa: S608
                read = self._query(sql, [[path], *held.values])
                if not read:
                    break  # the file contains none of them
                for row in read:
                    rows[places[row["prediction_id"], row["row"]]] |= row
        # A row erased concurrently is not in any of the files any more.
        return [{name: row.get(name) for name in names} for row in rows if row]

    def _growing(self) -> Iterator[list[str]]:
        """Yield the files of four hours, then of twice as many, and so on."""
        hours: list[list[str]] = []
        for path in self._paths:
            if hours and Path(hours[-1][0]).parent == Path(path).parent:
                hours[-1].append(path)
            else:
                hours.append([path])
        start, size = 0, 4
        while start < len(hours):
            yield [path for hour in hours[start : start + size] for path in hour]
            start, size = start + size, 2 * size

    def count(self, where: "ParquetConditions") -> int:
        """Count matching rows, which `sample` samples from. Returns their number."""
        self.total = 0
        if self._paths and not where.is_impossible(self.columns):
            sql = f"SELECT count(*) AS n FROM {self._from} WHERE {where.text}"  # noqa: S608
            self.total = int(self._query(sql, [self._paths, *where.values])[0]["n"])
        return self.total

    def sample(self, where: "ParquetConditions", *, most: int, columns: Sequence[str]) -> int:
        """Store counted rows for `by_hour`, `numbers` and `names`. Returns their number.

        If `total` exceeds `most`, a random sample of whole predictions is stored: the same one for
        other columns.
        """
        if not self.total:
            return 0
        cut = 65_536 if self.total <= most else max(1, 65_536 * most // self.total)
        self._share = cut / 65_536
        names = dict.fromkeys(["prediction_id", "at", "latency_us", *columns])
        shown = ", ".join(quoted(name) for name in names if name in self.columns)
        self._query(
            f"CREATE OR REPLACE TEMP TABLE chosen AS SELECT {shown} FROM {self._from} "  # noqa: S608
            f"WHERE {where.text} AND draw < ?",
            [self._paths, *where.values, cut],
        )
        return int(self._query("SELECT count(*) AS n FROM chosen", [])[0]["n"])

    def by_hour(self) -> list[Row]:
        """Return the number of predictions and the latencies of each hour in the sample."""
        rows = self._query(
            'SELECT epoch_us("at") // 3600000000 AS hour, count(DISTINCT prediction_id) AS n, '
            "quantile_cont(latency_us, 0.5) AS half, quantile_cont(latency_us, 0.95) AS slow "
            "FROM chosen GROUP BY 1 ORDER BY 1",
            [],
        )
        return [
            {
                "hour": datetime.fromtimestamp(row["hour"] * 3600, tz=UTC),
                "predictions": round(row["n"] / self._share),
                "p50_ms": row["half"] / 1000,
                "p95_ms": row["slow"] / 1000,
            }
            for row in rows
        ]

    def failures(self, where: "ParquetConditions") -> list[Row]:
        """Return the number of failed (5xx) and of refused (4xx) predictions by hour."""
        if not self._paths or where.is_impossible(self.columns):
            return []
        number = "count(DISTINCT prediction_id) FILTER"
        rows = self._query(
            f'SELECT epoch_us("at") // 3600000000 AS hour, {number} ({FAILED} >= 500) AS failed, '  # noqa: S608
            f"{number} ({FAILED} < 500) AS refused FROM {self._from} WHERE {where.text} GROUP BY 1",
            [self._paths, *where.values],
        )
        return [row | {"hour": datetime.fromtimestamp(row["hour"] * 3600, tz=UTC)} for row in rows]

    def numbers(self, name: str, edges: Sequence[float]) -> list[int]:
        """Count the sampled values of a column between edges, then missing and infinite ones."""
        column = quoted(name)
        place = f"CASE WHEN {column} IS NULL OR isnan({column}) THEN ? WHEN isinf({column}) THEN ?"
        values: list[Any] = [len(edges) + 1, len(edges) + 2]
        for at, edge in enumerate(edges):
            place += f" WHEN {column} <= ? THEN ?"
            values += [edge, at]
        sql = f"SELECT {place} ELSE ? END AS place, count(*) AS n FROM chosen GROUP BY 1"  # noqa: S608
        counts = [0] * (len(edges) + 3)
        for row in self._query(sql, [*values, len(edges)]):
            counts[row["place"]] = row["n"]
        return counts

    def names(self, name: str) -> dict[str | None, int]:
        """Count the sampled values of a column."""
        column = quoted(name)
        rows = self._query(
            f"SELECT CAST({column} AS VARCHAR) AS name, count(*) AS n FROM chosen "  # noqa: S608
            "GROUP BY 1 ORDER BY 2 DESC LIMIT 2000",
            [],
        )
        return {row["name"]: row["n"] for row in rows}


def _select_list(names: Sequence[str]) -> str:
    return ", ".join('epoch_us("at") AS "at"' if name == "at" else quoted(name) for name in names)


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


def quoted(name: str) -> str:
    """Return the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


class ParquetConditions:
    """A SQL condition, built part by part.

    `status` is `answered`, `failed`, `any` of them, or a status predictions failed with.
    """

    def __init__(self, status: str) -> None:
        self._parts = ["NOT is_shadow"]
        self.values: list[Any] = []
        if status == ANSWERED:
            self._parts.append(f"{FAILED} IS NULL")
        elif status == ALL_FAILED:
            self._parts.append(f"{FAILED} IS NOT NULL")
        elif status != ANY:
            self._parts.append(f"{FAILED} = ?")
            self.values.append(int(status))
        self._needed: list[str] = []

    @property
    def text(self) -> str:
        """The condition as SQL, with a placeholder for each value."""
        return " AND ".join(self._parts)

    def is_impossible(self, columns: dict[str, str]) -> bool:
        """Return whether a column of the condition is in none of the files."""
        return any(name not in columns for name in self._needed)

    def fact(self, name: str, operator: str, value: Any) -> "ParquetConditions":
        """Add a condition on one of the columns that every prediction has."""
        self._parts.append(f'"{name}" {_OPERATORS[operator]} ?')
        self.values.append(value)
        return self

    def among(self, name: str, values: Sequence[str]) -> "ParquetConditions":
        """Add that a column has one of some values."""
        self._parts.append(f'"{name}" IN (SELECT unnest(?::VARCHAR[]))')
        self.values.append(list(values))
        return self

    def not_in(self, name: str, values: Sequence[str]) -> "ParquetConditions":
        """Add that a column has none of some values."""
        if values:
            self._parts.append(f'"{name}" NOT IN (SELECT unnest(?::VARCHAR[]))')
            self.values.append(list(values))
        return self

    def rows_among(self, rows: Sequence[tuple[str, int]]) -> "ParquetConditions":
        """Add that it is one of some rows, by the ids of their predictions and their numbers."""
        self.among("prediction_id", sorted({prediction_id for prediction_id, _ in rows}))
        self._parts.append(
            "(prediction_id || '/' || \"row\"::VARCHAR) IN (SELECT unnest(?::VARCHAR[]))"
        )
        self.values.append([f"{prediction_id}/{row}" for prediction_id, row in rows])
        return self

    def time(self, operator: str, at: datetime) -> "ParquetConditions":
        """Add a condition on the time when the prediction was answered."""
        self._parts.append(f'epoch_us("at") {_OPERATORS[operator]} ?')
        self.values.append(_micros(at))
        return self

    def after_row(self, at: datetime, prediction_id: str, row: int) -> "ParquetConditions":
        """Add that rows come after this one in the order of `find`."""
        self._parts.append(
            '(epoch_us("at") < ? OR (epoch_us("at") = ? AND '
            '(prediction_id < ? OR (prediction_id = ? AND "row" > ?))))'
        )
        micros = _micros(at)
        self.values += [micros, micros, prediction_id, prediction_id, row]
        return self

    def feature(
        self, name: str, operator: str, value: str, *, is_number: bool
    ) -> "ParquetConditions":
        """Add a condition on an input or output. `is_number` is True if its values are numbers."""
        self._needed.append(name)
        self._parts.append(f"{quoted(name)} {_OPERATORS[operator]} ?")
        self.values.append(float(value) if is_number else value)
        if is_number:
            self._parts.append(f"NOT isnan({quoted(name)})")  # which counts as the largest number
        return self


@contextmanager
def flat(paths: Sequence[str]) -> Iterator[Flat]:
    """Open the flat files of a time range for queries."""
    connection = import_module("duckdb").connect(
        ":memory:",
        config={
            "memory_limit": MEMORY,
            "threads": _THREADS,
            "enable_external_access": "true",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Queries that need an order state it. Preserving the order of files slows down copies.
            "preserve_insertion_order": "false",
        },
    )
    try:
        yield Flat(connection, paths)
    finally:
        connection.close()


def answer_of(paths: Sequence[str], ask: Callable[[Flat], T]) -> T:
    """Query the files of a time range, in a low-priority thread whose priority DuckDB inherits.

    A long query then waits for predictions on this machine, and never the other way round.
    """
    # On Linux the priority is per thread, and threads that it starts inherit it.
    step_back = partial(lower_thread_priority, _STEP_BACK, always=False)
    with ThreadPoolExecutor(1, "duckdb", initializer=step_back) as own:
        return own.submit(_answer_of, paths, ask).result()


def _answer_of(paths: Sequence[str], ask: Callable[[Flat], T]) -> T:
    with flat(paths) as chosen:
        return ask(chosen)
