"""Run the quickstarts of frameworks as they are: job, run, model, endpoint, prediction, monitoring.

    .venv/bin/python bench/frameworks.py [--rows scikit_learn xgboost] [--json] [--write]

Starts a real Slipway in a folder of its own. Each quickstart is a folder of `examples/frameworks`
with `train.py` and `requirements.txt`, submitted by `slipway train` on 1 rank, and on 2 or 3 if it
distributes. A row passes if its jobs succeed, the run has its metric, the model that it registers
is served, predictions of the recorded example succeed over HTTP, and monitoring counts them all.

The case `rows_unmodified` has the rows that pass without a changed line beside all rows. With
`--write` the results replace those of the same rows in `docs/frameworks.md`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require()

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402

from bench.framework_rows import BY_NAME, Row  # noqa: E402
from bench.frameworks_page import PAGE, RowResult, write_page  # noqa: E402
from slipway import Client  # noqa: E402
from slipway.schemas.endpoints import EndpointOut  # noqa: E402
from slipway.schemas.training import JobOut  # noqa: E402
from tests.portals import RunningPortal, running_slipway  # noqa: E402

PROJECT = "frameworks"
PREDICTIONS = 20
GIB = 1024**3
_JOB_WITHIN_S = 1500.0
_SERVES_WITHIN_S = 900.0
_COUNTED_WITHIN_S = 120.0
_STOPS_WITHIN_S = 120.0
_POLL_S = 0.5
# Tiers: (CPU in thousandths, memory). A job and a replica never run at the same time.
_JOB_TIER, _REPLICA_TIER = (1500, 8 * GIB), (900, 4 * GIB)
Value = TypeVar("Value")


class RowFailure(Exception):
    """A row does not pass. The message is the reason that the page shows."""


@dataclass
class Matrix:
    """A running Slipway with the project of the matrix, and where its processes put their files."""

    running: RunningPortal
    client: Client
    administrator: Client
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def submit(self, row: Row, ranks: int) -> JobOut:
        """Run a quickstart by `slipway train` from a copy of its folder. Returns the ended job."""
        code = self.folder / "code" / f"{row.name}-{ranks}"
        shutil.copytree(row.folder, code)
        command = [sys.executable, "-m", "slipway", "train", "train.py", "--project", PROJECT]
        command += ["--tier", "job", "--name", f"{row.name}-{ranks}", "--json"]
        if ranks > 1:
            command += ["--procs", str(ranks)]
            command += ["--framework", row.framework] if row.framework else []
        done = subprocess.run(
            command, cwd=code, env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RowFailure(f"not submitted: {last_line(done.stderr)}")
        submitted = JobOut.model_validate_json(done.stdout).workload.id
        try:
            job = self.client.jobs.wait(submitted, project=PROJECT, timeout_s=_JOB_WITHIN_S)
        except TimeoutError as error:
            raise RowFailure(f"job on {ranks}: {error}") from error
        if job.workload.state != "succeeded":
            self._print_log(job, ranks)
            raise RowFailure(f"job on {ranks}: {job.workload.explanation}")
        return job

    def _print_log(self, job: JobOut, ranks: int) -> None:
        for rank in range(ranks):
            pieces = self.client.jobs.logs(job.workload.id, project=PROJECT, rank=rank)
            log = b"".join(pieces).decode(errors="replace")
            print(f"rank {rank}:\n{log[-3000:]}", file=sys.stderr, flush=True)

    def check_run(self, row: Row, job: JobOut) -> None:
        """Check that a run since the submission has the metric, and the job's run the file."""
        since = job.workload.created_at
        runs = [
            run
            for run in islice(self.client.runs.list(project=PROJECT), 20)
            if row.metric in run.metrics and run.started_at and run.started_at >= since
        ]
        if not runs:
            raise RowFailure(f"no run has the metric {row.metric}")
        if row.ranks > 1 and "ranks" in runs[0].metrics:
            expected = job.workload.nodes * job.workload.procs
            if runs[0].metrics["ranks"] != expected:
                raise RowFailure(f"the ranks have not joined: {runs[0].metrics['ranks']} at work")
        if row.artifact:
            # Files that the job keeps belong to its own run, which it has from the start.
            tag = f"tags.slipway.job = '{job.workload.id}'"
            for run in self.client.runs.list(project=PROJECT, filter=tag):
                self._check_artifact(row, run.id)

    def _check_artifact(self, row: Row, run: str) -> None:
        folder = row.artifact.rpartition("/")[0]
        files = self.client.runs.artifacts(run, project=PROJECT, path=folder)
        if not any(file.path.startswith(row.artifact) for file in files):
            raise RowFailure(f"the run has no file {row.artifact}")

    def serve(self, row: Row) -> EndpointOut:
        """Serve the latest version of the model of a row. Returns the endpoint once it serves."""
        name = row.name.replace("_", "-")
        self.client.endpoints.create(
            name, row.model, project=PROJECT, tier="replica", min_replicas=1, max_replicas=1
        )

        def is_serving() -> EndpointOut | None:
            endpoint = self.client.endpoints.get(name, project=PROJECT)
            if endpoint.state == "failed":
                raise RowFailure(f"endpoint: {endpoint.reason}")
            ready = any(revision.replicas_ready for revision in endpoint.revisions)
            return endpoint if endpoint.state == "serving" and ready else None

        return wait_for(is_serving, "serving endpoint", within_s=_SERVES_WITHIN_S)

    def predict(self, row: Row, endpoint: EndpointOut) -> int:
        """Send the recorded example over HTTP, and wait until monitoring has counted it."""
        (version, *_) = self.client.models.versions(row.model, project=PROJECT)
        detail = self.client.models.version(row.model, version.version, project=PROJECT)
        example = row.example or detail.example
        if not example:
            raise RowFailure("the version has no recorded example")
        key = self.client.endpoints.keys.create(endpoint.name, "matrix", project=PROJECT).key
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        url = f"{self.gateway}/v1/{endpoint.name}/invocations"

        def answer() -> httpx.Response | None:
            response = httpx.post(url, content=example, headers=headers, timeout=60)
            # A gateway gets a new key within a second.
            return None if response.status_code in (401, 403, 503) else response

        for _ in range(PREDICTIONS):
            response = wait_for(answer, "answer of the endpoint", within_s=60)
            if not response.is_success:
                raise RowFailure(f"prediction: {response.status_code} {response.text[:300]}")
        monitoring = self.client.endpoints.monitoring

        def count() -> int | None:
            counted = monitoring.show(endpoint.name, project=PROJECT).predictions
            return counted if counted >= PREDICTIONS else None

        return wait_for(count, "count of the predictions", within_s=_COUNTED_WITHIN_S)

    @property
    def gateway(self) -> str:
        """The address of the gateway."""
        return f"http://127.0.0.1:{self.running.installation.gateway_port}"

    def remove_endpoints(self) -> None:
        """Delete all endpoints, and wait until their replicas have made room for the next job.

        A replica survives its agent, so one that still stops at the end would be left behind.
        """
        for endpoint in self.client.endpoints.list(project=PROJECT):
            self.client.endpoints.delete(endpoint.name, project=PROJECT)

        def is_idle() -> bool | None:
            return not any(node.tasks for node in self.administrator.nodes.list()) or None

        wait_for(is_idle, "end of the replicas", within_s=_STOPS_WITHIN_S)

    def versions(self, row: Row, job: JobOut) -> str:
        """Return the packages of a row with their versions, from the build log of its job.

        Without a build, the job used the environment of the installation: the one of this script.
        """
        jobs, log = self.client.jobs, b""
        for build in jobs.builds(job.workload.id, project=PROJECT):
            log += b"".join(jobs.build_log(job.workload.id, project=PROJECT, node=build.node))
        pairs = re.findall(r"^ \+ ([\w.-]+)==(\S+)", log.decode(errors="replace"), re.MULTILINE)
        installed = {normalized(name): number.partition("+")[0] for name, number in pairs}
        texts = []
        for package in row.packages:
            number = installed.get(package) if installed else version(package).partition("+")[0]
            texts.append(f"{package} {number or 'unknown'}")
        return ", ".join(texts)


def normalized(name: str) -> str:
    """Return the name of a package as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def wait_for(look: Callable[[], Value | None], what: str, *, within_s: float) -> Value:
    """Return the first result that is not None. Raises RowFailure at the end of the time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = look()
        if value is not None:
            return value
        time.sleep(_POLL_S)
    raise RowFailure(f"no {what} within {within_s:g} s")


@contextmanager
def running_matrix(folder: Path) -> Iterator[Matrix]:
    """Yield a Slipway with a node, a gateway, a tracking server and the project."""
    with (
        running_slipway(
            folder, SLIPWAY_EMBEDDED_TRACKING="true", SLIPWAY_EMBEDDED_GATEWAY="true"
        ) as running,
        running.client("root") as root,
    ):
        for slug, (cpu_millis, memory_bytes) in (("job", _JOB_TIER), ("replica", _REPLICA_TIER)):
            resources = {"cpu_millis": cpu_millis, "memory_bytes": memory_bytes}
            body = {"name": slug, "slug": slug, "resources": resources, "nano_usd_per_hour": 10**9}
            root.post("/tiers", json=body).raise_for_status()
        with (
            Client(running.url, token=running.tokens["alice"]) as client,
            Client(running.url, token=running.tokens["root"]) as administrator,
        ):
            client.projects.create(PROJECT)
            environ = os.environ | {
                "SLIPWAY_URL": running.url,
                "SLIPWAY_TOKEN": running.tokens["alice"],
                "SLIPWAY_CONFIG_DIR": str(folder / "config"),
                "PYTHONPATH": str(ROOT / "platform"),
            }
            yield Matrix(running, client, administrator, folder, environ)


def run_row(matrix: Matrix, row: Row, *, jobs_only: bool) -> RowResult:
    """Run a row to its end, or to its first failure."""
    result = RowResult(row)
    try:
        try:
            _fill(result, matrix, jobs_only=jobs_only)
        finally:
            matrix.remove_endpoints()
    except RowFailure as failure:
        result.failure = " ".join(str(failure).split())
    return result


def _fill(result: RowResult, matrix: Matrix, *, jobs_only: bool) -> None:
    row = result.row
    result.job_s, job = timed(lambda: matrix.submit(row, row.first_ranks))
    result.versions = matrix.versions(row, job)
    matrix.check_run(row, job)
    if row.ranks > row.first_ranks:
        result.ranks_s, job = timed(lambda: matrix.submit(row, row.ranks))
        matrix.check_run(row, job)
    if row.model and not jobs_only:
        result.serve_s, endpoint = timed(lambda: matrix.serve(row))
        result.predictions = matrix.predict(row, endpoint)


def timed(action: Callable[[], Value]) -> tuple[float, Value]:
    """Return the seconds of an action, and its result."""
    started = time.monotonic()
    value = action()
    return time.monotonic() - started, value


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Run the quickstarts of frameworks as they are.")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument(
        "--rows", nargs="+", default=list(BY_NAME), metavar="ROW", help=", ".join(BY_NAME)
    )
    parser.add_argument("--jobs-only", action="store_true", help="serve no model")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.rows if name not in BY_NAME]:
        parser.error(f"there is no row {unknown[0]}; choose from {', '.join(BY_NAME)}")
    if arguments.jobs_only and arguments.write:
        parser.error("the page has whole rows; omit --jobs-only or --write")
    return arguments


def case_of(results: Sequence[RowResult]) -> dict[str, Any]:
    """Return how many rows passed without a changed line, beside all rows that were run."""
    passed = sum(1 for result in results if result.is_unmodified)
    return {
        "ours": passed,
        "peer": len(results),
        "ratio": round(passed / len(results), 3),
        "unit": "rows",
    }


def main() -> None:
    """Run the rows, print each, and write the page on request."""
    arguments = read_arguments()
    rows = [BY_NAME[name] for name in arguments.rows]
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="frameworks-") as folder,
        running_matrix(Path(folder)) as matrix,
    ):
        for row in rows:
            results.append(run_row(matrix, row, jobs_only=arguments.jobs_only))
            print(results[-1].line(), flush=True)
            if arguments.write:
                write_page(results[-1:])
    if arguments.json:
        print(json.dumps({"bench": "frameworks", "cases": {"rows_unmodified": case_of(results)}}))


if __name__ == "__main__":
    main()
