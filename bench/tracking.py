"""Slipway's tracking server compared with `mlflow server`, on the same kind of database.

    .venv/bin/python bench/tracking.py [--json] [--rounds 5] [--runs 100000]
        [--points 100000] [--databases sqlite postgres]

Both servers run at the same time, each with its own database: SQLite files, and two databases of
one PostgreSQL (DATABASE_URL, or a temporary one from `scripts/with-postgres`). They take turns in
each round, and a figure is the median of the rounds. The client is the unmodified `MlflowClient`,
whose own time is included, except where a case is the CPU time of the server. Ratios are speed-ups.
"""

import argparse
import json
import os
import secrets
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "mlflow"])

os.environ |= {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "GIT_PYTHON_REFRESH": "quiet",
}

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402
import psycopg  # noqa: E402
from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric  # noqa: E402

from tests.processes import children_of, free_ports, wait_for  # noqa: E402
from tests.tracking import tracking_portal  # noqa: E402

_TICKS = os.sysconf("SC_CLK_TCK")
_DATABASES = ("sqlite", "postgres")
_LOGGED = ("m1", "m2", "m3")
Timed = tuple[float, float]


@dataclass
class Server:
    """A server under test, its client, and its database."""

    name: str
    url: str
    pids: Callable[[], list[int]]
    database: str
    client: MlflowClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = MlflowClient(tracking_uri=self.url)

    def cpu_s(self) -> float:
        """Return the CPU time that its processes have used."""
        return sum(map(_cpu_of, self.pids()))


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _tree(root: int) -> list[int]:
    pids = [root]
    for pid in pids:
        pids += children_of(pid)
    return pids


@contextmanager
def _slipway(folder: Path, database_url: str) -> Iterator[Server]:
    previous = os.environ.get("DATABASE_URL")
    os.environ["DATABASE_URL"] = database_url
    try:
        with tracking_portal(folder, SLIPWAY_LOG_LEVEL="warning") as running:
            token = running.portal.tokens["alice"]
            os.environ["MLFLOW_TRACKING_TOKEN"] = token
            own_url = running.portal.installation.environ["DATABASE_URL"]
            database = own_url or str(running.portal.installation.data_dir / "mlflow.db")
            roots = (running.portal.program.pid, running.server.pid)
            yield Server(
                "slipway",
                running.uri("alice"),
                lambda: [pid for root in roots for pid in _tree(root)],
                database,
            )
    finally:
        os.environ["DATABASE_URL"] = previous or ""


@contextmanager
def _peer(folder: Path, database: str) -> Iterator[Server]:
    folder.mkdir()
    (port,) = free_ports(1)
    is_file = not database.startswith("postgres")
    uri = f"sqlite:///{database}" if is_file else database.replace("://", "+psycopg://", 1)
    argv = [sys.executable, "-m", "mlflow", "server", "--port", str(port)]
    argv += ["--backend-store-uri", uri, "--artifacts-destination", str(folder / "artifacts")]
    # Its usual 5 s are shorter than a turn of the other side, and clients do not repeat a POST.
    argv += ["--uvicorn-opts", "--timeout-keep-alive 600"]
    with (folder / "peer.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/health", timeout=2).is_success
        except httpx.TransportError:
            return False

    try:
        wait_for(answers, "response of mlflow server", within_s=120)
        yield Server("mlflow server", url, lambda: _tree(process.pid), database)
    finally:
        for pid in reversed(_tree(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


@contextmanager
def _two_databases(server: str) -> Iterator[tuple[str, str]]:
    """Yield the URLs for Slipway, which creates its own database there, and for the peer."""
    name = f"peer_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield server, urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _rows(experiment: str, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the rows of `count` runs, each with the name of its table."""
    for number in range(count):
        run, start = f"{number:032x}", 1_700_000_000_000 + number
        uri = f"mlflow-artifacts:/{run}/artifacts"
        info = (run, f"run {number}", "FINISHED", start, start, "active", uri, experiment)
        yield "runs", (*info, "LOCAL", "", "", "", "bench")
        for key in _LOGGED:
            yield "latest_metrics", (key, float(number % 97), start, 1, False, run)
            yield "params", (key, str(number % 10), run)
        yield "tags", ("mlflow.runName", f"run {number}", run)


_COLUMNS = {
    "runs": "run_uuid, name, status, start_time, end_time, lifecycle_stage, artifact_uri,"
    " experiment_id, source_type, source_name, entry_point_name, source_version, user_id",
    "latest_metrics": "key, value, timestamp, step, is_nan, run_uuid",
    "params": "key, value, run_uuid",
    "tags": "key, value, run_uuid",
}


def _fill(server: Server, runs: int) -> str:
    """Insert runs into the tables of a server. Returns their experiment."""
    experiment = str(server.client.create_experiment(f"big {time.time_ns()}"))
    rows_by_table: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _COLUMNS}
    for table, row in _rows(experiment, runs):
        rows_by_table[table].append(row)
    if server.database.startswith("postgres"):
        with psycopg.connect(server.database, autocommit=True) as connection:
            connection.execute("SET search_path TO mlflow, public")
            for table, rows in rows_by_table.items():
                copy = f"COPY {table} ({_COLUMNS[table]}) FROM STDIN"
                with connection.cursor() as cursor, cursor.copy(copy) as into:
                    for row in rows:
                        into.write_row(row)
            connection.execute("ANALYZE")
    else:
        with closing(sqlite3.connect(server.database, timeout=60)) as file, file:
            for table, rows in rows_by_table.items():
                placeholders = ", ".join("?" * len(rows[0]))
                insert = f"INSERT INTO {table} ({_COLUMNS[table]}) VALUES ({placeholders})"  # noqa: S608
                file.executemany(insert, rows)
    return experiment


def _timed(server: Server, work: Callable[[], Any], repeats: int) -> Timed:
    """Return the mean seconds of a call: wall time, and CPU time of the server."""
    cpu, started = server.cpu_s(), time.perf_counter()
    for _ in range(repeats):
        work()
    took = time.perf_counter() - started
    return took / repeats, (server.cpu_s() - cpu) / repeats


class Bench:
    """Measures both servers on one kind of database."""

    def __init__(self, servers: list[Server], rounds: int) -> None:
        self.servers = servers
        self.rounds = rounds

    def measure(self, make: Callable[[Server], Callable[[], Any]], repeats: int) -> list[Timed]:
        """Return the time of a call on each server, as medians of interleaved rounds."""
        calls = [make(server) for server in self.servers]
        results: list[list[Timed]] = [[] for _ in self.servers]
        for call in calls:
            call()
        for round_ in range(self.rounds):
            turns = list(enumerate(zip(self.servers, calls, strict=True)))
            for index, (server, call) in turns if round_ % 2 else turns[::-1]:
                results[index].append(_timed(server, call, repeats))
        return [
            (
                statistics.median(wall for wall, _ in times),
                statistics.median(cpu for _, cpu in times),
            )
            for times in results
        ]


def _log_metric(server: Server) -> Callable[[], Any]:
    experiment = server.client.create_experiment(f"metric {time.time_ns()}")
    run = server.client.create_run(experiment).info.run_id
    steps = iter(range(10**9))
    return lambda: server.client.log_metric(run, "loss", 0.5, step=next(steps))


def _log_batch(server: Server) -> Callable[[], Any]:
    experiment = server.client.create_experiment(f"batch {time.time_ns()}")
    run = server.client.create_run(experiment).info.run_id
    starts = iter(range(0, 10**9, 1_000))

    def log() -> None:
        start = next(starts)
        points = [
            Metric("loss", float(step), 1_700_000_000_000 + step, step)
            for step in range(start, start + 1_000)
        ]
        server.client.log_batch(run, metrics=points)

    return log


def _create_run(server: Server) -> Callable[[], Any]:
    experiment = server.client.create_experiment(f"create {time.time_ns()}")
    return lambda: server.client.create_run(experiment, tags={"a": "b", "mlflow.user": "u"})


def _search(runs: int) -> Callable[[Server], Callable[[], Any]]:
    def make(server: Server) -> Callable[[], Any]:
        experiment = _fill(server, runs)

        def search() -> None:
            assert len(server.client.search_runs([experiment], max_results=100)) == min(100, runs)

        return search

    return make


def _long_curve(server: Server, length: int) -> tuple[httpx.Client, str]:
    """Log a curve. Returns an HTTP client and the run."""
    experiment = server.client.create_experiment(f"history {time.time_ns()}")
    run = server.client.create_run(experiment).info.run_id
    for start in range(0, length, 1_000):
        points = [
            Metric("loss", float(step % 977), 1_700_000_000_000 + step, step)
            for step in range(start, min(start + 1_000, length))
        ]
        server.client.log_batch(run, metrics=points)
    token = os.environ["MLFLOW_TRACKING_TOKEN"]
    return httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=300), run


def _sampled(length: int) -> Callable[[Server], Callable[[], Any]]:
    """Return the request of MLflow's own chart: 320 points, sampled by MLflow at regular steps."""

    def make(server: Server) -> Callable[[], Any]:
        http, run = _long_curve(server, length)
        address = f"{server.url}/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
        query: dict[str, str | int] = {"run_ids": run, "metric_key": "loss", "max_results": 320}

        def ask() -> None:
            response = http.get(address, params=query)
            assert len(response.json()["metrics"]) >= 300, response.text[:300]

        return ask

    return make


def _history(length: int) -> Callable[[Server], Callable[[], Any]]:
    """Return the request of a chart that shows every peak: 320 points with minima and maxima.

    `mlflow server` has no such call, so a chart there needs the whole curve.
    """

    def make(server: Server) -> Callable[[], Any]:
        if server.name == "slipway":
            return _sampled(length)(server)
        http, run = _long_curve(server, length)
        address = f"{server.url}/api/2.0/mlflow/metrics/get-history"

        def ask() -> None:
            response = http.get(address, params={"run_id": run, "metric_key": "loss"})
            assert len(response.json()["metrics"]) == length, response.text[:300]

        return ask

    return make


def _case(timed: list[Timed], unit: str, *, of_cpu: bool = False) -> dict[str, Any]:
    ours, peer = (times[1] if of_cpu else times[0] for times in timed)
    return {
        "ours": round(ours * 1000, 3),
        "peer": round(peer * 1000, 3),
        "ratio": round(peer / max(ours, 1e-6), 2),
        "unit": unit,
    }


def _measure_database(
    bench: Bench, database: str, runs: int, points: int
) -> dict[str, dict[str, Any]]:
    """Measure one database. The names of the cases end with its name."""
    metric = bench.measure(_log_metric, 60)
    batch = bench.measure(_log_batch, 6)
    create = bench.measure(_create_run, 25)
    search = bench.measure(_search(runs), 3)
    history = bench.measure(_history(points), 1)
    sampled = bench.measure(_sampled(points), 2)
    ending = f"_{database}"
    return {
        f"log_metric{ending}": _case(metric, "ms"),
        f"log_metric_cpu{ending}": _case(metric, "ms of server CPU", of_cpu=True),
        f"log_batch{ending}": _case(batch, "ms"),
        f"server_cpu_log_batch{ending}": _case(batch, "ms of server CPU", of_cpu=True),
        f"create_run{ending}": _case(create, "ms"),
        f"search_runs_100k{ending}": _case(search, "ms"),
        f"search_runs_100k_cpu{ending}": _case(search, "ms of server CPU", of_cpu=True),
        f"history_100k{ending}": _case(history, "ms"),
        f"history_100k_sampled{ending}": _case(sampled, "ms"),
    }


def _on_each(folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {}
    server = os.environ.get("DATABASE_URL", "")
    for database in arguments.databases:
        with ExitStack() as stack:
            ours, peer = "", str(folder / "peer.db")
            if database == "postgres":
                ours, peer = stack.enter_context(_two_databases(server))
            servers = [
                stack.enter_context(_slipway(folder / f"ours-{database}", ours)),
                stack.enter_context(_peer(folder / f"peer-{database}", peer)),
            ]
            bench = Bench(servers, arguments.rounds)
            cases |= _measure_database(bench, database, arguments.runs, arguments.points)
        os.environ["DATABASE_URL"] = server
    # Documented names. With PostgreSQL the server waits least for the disk.
    if "postgres" in arguments.databases:
        for name in ("server_cpu_log_batch", "create_run", "search_runs_100k", "history_100k"):
            cases[name] = cases[f"{name}_postgres"]
    return cases


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=100_000, help="length of the curve")
    parser.add_argument("--databases", nargs="+", choices=_DATABASES, default=_DATABASES)
    arguments = parser.parse_args()
    if arguments.points < 320:
        parser.error("a chart has 320 points; choose at least as many --points")
    has_server = os.environ.get("DATABASE_URL", "").startswith("postgres")
    if "postgres" in arguments.databases and not has_server:
        command = [str(ROOT / "scripts/with-postgres"), sys.executable, *sys.argv]
        raise SystemExit(subprocess.run(command, cwd=ROOT, check=False).returncode)
    folder = Path(tempfile.mkdtemp(prefix="slipway-bench-"))
    try:
        cases = _on_each(folder, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, case in cases.items():
        figures = f"{case['ours']:>10} {case['peer']:>10} {case['ratio']:>7}"
        print(f"{name:32} {figures} times, {case['unit']}")
    if arguments.json:
        print(json.dumps({"bench": "tracking", "cases": cases}))


if __name__ == "__main__":
    main()
