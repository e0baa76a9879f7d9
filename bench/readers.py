"""Values of small files as read by Slipway, pandas, DuckDB, Polars and Hugging Face `datasets`.

    .venv/bin/python bench/readers.py [--json] [--no-peers]

Every reader runs with its defaults. The table shows the values that each returns, and marks a cell
with ✗ if a value silently differs from the one in the file. The peers (1 GB) are installed on first
use, into their own virtual environment.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SLIPWAY_BENCH_CACHE", Path.home() / ".cache" / "slipway-bench"))
PACKAGES = ["pandas", "openpyxl", "pyarrow", "duckdb", "polars", "fastexcel", "datasets"]
READERS = ("Slipway", "pandas", "DuckDB", "Polars", "datasets")


@dataclass(frozen=True)
class Case:
    """A file, the column to check, and its values in every form that counts as exact."""

    title: str
    path: str
    content: bytes
    column: str
    exact: tuple[list[str], ...]


def _lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def cases() -> list[Case]:
    """Return the cases."""
    return [
        Case("`01234`", "zip.csv", _lines("zip", "01234"), "zip", (["01234"],)),
        Case("country `NA`", "na.csv", _lines("c,n", "NA,1", "AT,2"), "c", (["NA", "AT"],)),
        Case(
            "12345678901234567.89",
            "long.csv",
            _lines("price", "12345678901234567.89"),
            "price",
            (["12345678901234567.89"],),
        ),
        Case(
            "9007199254740993 and a missing value",
            "id.csv",
            _lines("id,n", "9007199254740993,1", ",2"),
            "id",
            (["9007199254740993", "missing"],),
        ),
        Case(
            "18446744073709551615 and 1",
            "u.csv",
            _lines("u", "18446744073709551615", "1"),
            "u",
            (["18446744073709551615", "1"],),
        ),
        Case("a name twice", "twice.csv", _lines("x,y,x", "1,2,3"), "x", (["1"],)),
        Case(
            'JSON lines, text `"01234"`',
            "zip.jsonl",
            _lines('{"zip": "01234"}'),
            "zip",
            (["01234"],),
        ),
        Case(
            "JSON lines, `5` and `\"5\"`",
            "mixed.jsonl",
            _lines('{"a": 5}', '{"a": "5"}'),
            "a",
            (["5", "'5'"], ["'5'", "'\"5\"'"]),
        ),
        Case(
            'JSON lines, `{"a": 1, "a": 2}`', "key.jsonl", _lines('{"a": 1, "a": 2}'), "a", ()
        ),
        Case(
            "JSON lines, 18446744073709551615",
            "u.jsonl",
            _lines('{"u": 18446744073709551615}', '{"u": 1}'),
            "u",
            (["18446744073709551615", "1"],),
        ),
        Case("Latin-1 `José`", "l1.csv", "name\nJosé\n".encode("latin-1"), "name", (["José"],)),
        Case(
            "`.csv.gz`, `01234`",
            "zip.csv.gz",
            gzip.compress(_lines("zip", "01234")),
            "zip",
            (["01234"],),
        ),
        Case("time with zone", "t.csv", _lines("t,n", "2024-01-05T10:00:00+02:00,1"), "t",
             (["2024-01-05 08:00:00+00:00"], ["2024-01-05T10:00:00+02:00"],
              ["2024-01-05 10:00:00+02:00"])),
    ]  # fmt: skip


def _slipway(path: Path, root: Path, column: str) -> list[Any]:
    tables: Any = import_module("slipway.tables")
    schemas: Any = import_module("slipway.schemas.tables")
    name = path.relative_to(root).as_posix()

    def refuse(problem: Any) -> None:
        raise ValueError(problem.message)

    reader = tables.TableReader(
        schemas.ReadSettings(),
        partitions=schemas.distinct_partitions([name]),
        on_problem=refuse,
    )
    values: list[Any] = []
    with path.open("rb") as source:
        for batch in reader.read(source, path=name, format=schemas.format_of(name)):
            values += batch.column(column).to_pylist()
    return values


def _pandas(path: Path, root: Path, column: str) -> list[Any]:
    pandas: Any = import_module("pandas")
    is_json = ".jsonl" in path.name
    frame = pandas.read_json(path, lines=True) if is_json else pandas.read_csv(path)
    return list(frame[column].tolist())


def _duckdb(path: Path, root: Path, column: str) -> list[Any]:
    duckdb: Any = import_module("duckdb")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return [row[0] for row in connection.sql(f"SELECT {column} FROM '{path}'").fetchall()]  # noqa: S608


def _polars(path: Path, root: Path, column: str) -> list[Any]:
    polars: Any = import_module("polars")
    if ".jsonl" in path.name:
        return list(polars.read_ndjson(path)[column].to_list())
    return list(polars.read_csv(path)[column].to_list())


def _datasets(path: Path, root: Path, column: str) -> list[Any]:
    datasets: Any = import_module("datasets")
    kind = "json" if ".jsonl" in path.name else "csv"
    loaded = datasets.load_dataset(
        kind, data_files=str(path), split="train", cache_dir=str(root / ".cache")
    )
    return list(loaded[column])


_READ: dict[str, Callable[[Path, Path, str], list[Any]]] = {
    "Slipway": _slipway,
    "pandas": _pandas,
    "DuckDB": _duckdb,
    "Polars": _polars,
    "datasets": _datasets,
}


def _format_value(value: Any, *, quoted: bool) -> str:
    if value is None or value != value or str(value) in ("NaT", "<NA>"):
        return "missing"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return str(int(value))
    return repr(value) if quoted and isinstance(value, str) else str(value)


def read_all(readers: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the result of each case and reader: values and whether they are exact, or an error."""
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases():
        for reader in readers:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / case.path
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(case.content)
                try:
                    values = _READ[reader](path, Path(folder), case.column)
                # Each reader raises its own exceptions.
                except Exception as error:  # noqa: BLE001
                    result: dict[str, Any] = {"error": " ".join(str(error).split())[:120]}
                else:
                    shown = [_format_value(value, quoted="mixed" in case.path) for value in values]
                    result = {"values": shown, "is_exact": shown in case.exact}
            results.setdefault(case.title, {})[reader] = result
    return results


def _read_by_peers() -> dict[str, dict[str, dict[str, Any]]]:
    folder = CACHE / "readers"
    needs: Any = import_module("bench.needs")
    try:
        if not (folder / ".ready").exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
            (folder / ".ready").touch()
    except (subprocess.CalledProcessError, OSError) as error:
        needs.refuse(f"could not install the peers ({error}); --no-peers runs without them.")
    done = subprocess.run(
        [folder / "bin" / "python", __file__, "--as-peer"],
        env={**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    results: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return results


def _versions() -> dict[str, str]:
    metadata: Any = import_module("importlib.metadata")
    return {name: metadata.version(name) for name in ("pandas", "duckdb", "polars", "datasets")}


def _cell(result: dict[str, Any]) -> str:
    if "error" in result:
        return "refused"
    values = ", ".join(result["values"])
    return values if result["is_exact"] else f"✗ {values}"


def _count_wrong(
    results: dict[str, dict[str, dict[str, Any]]], readers: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Return for each reader the number of files with silently wrong values. The peer is 0."""
    return {
        f"wrong_files_{reader}": {
            "ours": sum(row[reader].get("is_exact") is False for row in results.values()),
            "peer": 0,
            "ratio": None,
            "unit": "files",
        }
        for reader in readers
    }


def main() -> None:
    """Read all files and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-peers", action="store_true", help="read with Slipway alone")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer:
        # Import the package `datasets`, not the script of that name in this folder.
        sys.path.remove(str(ROOT / "bench"))
        print(json.dumps({"cases": read_all(list(READERS[1:])), "versions": _versions()}))
        return
    sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
    needs: Any = import_module("bench.needs")
    needs.require(["pyarrow", "pydantic"])
    peers = _read_by_peers() if not options.no_peers else {"cases": {}, "versions": {}}
    readers = READERS[:1] if options.no_peers else READERS
    results = read_all(["Slipway"])
    for title, row in results.items():
        row.update(peers["cases"].get(title, {}))
    if options.json:
        report = {"bench": "readers", "cases": _count_wrong(results, readers)}
        print(json.dumps(report | {"read": results, "versions": peers["versions"]}))
        return
    versions = ", ".join(f"{name} {version}" for name, version in peers["versions"].items())
    print(f"{versions}; {datetime.now(UTC).date()}\n")
    print(f"| file | {' | '.join(readers)} |")
    print(f"|{'---|' * (len(readers) + 1)}")
    for title, row in results.items():
        print(f"| {title} | {' | '.join(_cell(row[reader]) for reader in readers)} |")


if __name__ == "__main__":
    main()
