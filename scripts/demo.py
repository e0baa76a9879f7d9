"""`make demo`: start Slipway and drive what it is for once, on real data, printing every address.

    .venv/bin/python scripts/demo.py [--exit]

Leaves the platform running (Ctrl-C stops it); with `--exit` it is stopped at the end. Every step is
a call that any client could make. The status is 0 only if each of them succeeded.
"""

import argparse
import contextlib
import csv
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "platform"))

from portal.config.env import env  # noqa: E402  (the path comes first)
from slipway import Client, Endpoint, train, watching  # noqa: E402
from slipway.errors import Conflict, NotFound, SlipwayError  # noqa: E402
from slipway.money import dollars  # noqa: E402
from slipway.schemas.datasets import VersionOut  # noqa: E402
from slipway.schemas.endpoints import EndpointOut  # noqa: E402
from slipway.schemas.registry import RulesIn  # noqa: E402
from slipway.schemas.training import JobOut  # noqa: E402
from slipway.schemas.workloads import WorkloadState  # noqa: E402

PROJECT = "digits"
MODEL = ENDPOINT = "digits"
STAGE = "Production"
EXAMPLE = ROOT / "examples" / "digits"
READY_WITHIN_S = 120.0
NODE_WITHIN_S = 60.0
SERVES_WITHIN_S = 300.0
ASKED_DIGITS = 200
# What a first person should see of the platform's own log: its address, and the password.
_WORTH_SHOWING = ("slipway:", "Slipway is ready")
Found = TypeVar("Found")


class DemoError(Exception):
    """A step did not do what it is there for; the message says which and why."""


class Platform:
    """A `manage.py up` of our own, whose log is shown once the demo is over."""

    def __init__(self) -> None:
        self._shows_all = False
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--no-input", "--stop-with-parent"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._relay, daemon=True)
        self._reader.start()

    def _relay(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  (a pipe was asked for)
        for line in self._process.stdout:
            if self._shows_all or any(mark in line for mark in _WORTH_SHOWING):
                print(line, end="", flush=True)

    def has_ended(self) -> bool:
        """Whether it stopped, or refused to start (and said why)."""
        return self._process.poll() is not None

    def stay(self) -> int:
        """Show its log until somebody stops it; returns its exit status."""
        self._shows_all = True
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reaches the platform as well
                return self._end()

    def stop(self) -> int:
        """Stop it as Ctrl-C does; returns its exit status."""
        if not self.has_ended():
            self._process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        status = self._process.wait()
        self._reader.join(timeout=5)
        return status


def wait_for(look: Callable[[], Found | None], what: str, *, within_s: float) -> Found:
    """Return what `look` finds; raises DemoError after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise DemoError(f"{what}: not within {within_s:g} s")
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Name a step, and say how long it took."""
    began = time.monotonic()
    print(f"\n▸ {what}", flush=True)
    yield
    print(f"  done in {time.monotonic() - began:.1f} s", flush=True)


def show(name: str, address: str) -> None:
    """Print where a result is to be seen."""
    print(f"  {name + ':':<12} {address}", flush=True)


def _is_ready(platform: Platform, url: str) -> bool | None:
    if platform.has_ended():
        raise DemoError("Slipway did not start; the reason stands above")
    with contextlib.suppress(httpx.HTTPError):
        if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK:
            return True
    return None


def _token() -> str:
    made = subprocess.run(
        [sys.executable, "manage.py", "user_token", "--name", "make demo", "--days", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise DemoError(f"no token for the demo: {made.stderr.strip()}")
    return made.stdout.strip()


def _project(client: Client) -> str:
    try:
        return client.projects.get(PROJECT).slug
    except NotFound:
        about = "Handwritten digits: what `make demo` trains."
        return client.projects.create("Digits", slug=PROJECT, description=about).slug


def _a_node(client: Client) -> str | None:
    for node in client.nodes.list():
        if node.state == "ready":
            return node.name
    return None


def _data(client: Client, project: str) -> VersionOut:
    """Make the digits a version of a dataset; the same digits make no second one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.csv"
        subprocess.run([sys.executable, EXAMPLE / "make_csv.py", file], check=True)
        version = client.datasets.push("digits", file, project=project, note="From scikit-learn.")
    show("dataset", client.datasets.page("digits", project=project, version=version.number))
    (table,) = client.datasets.tables("digits", version.number or 0, project=project)
    show("table", f"{table.statistics.rows} rows, {len(table.statistics.columns)} columns")
    return version


def _train(client: Client, project: str, data: VersionOut) -> JobOut:
    job = train(
        "train.py",
        folder=EXAMPLE,
        datasets=[data.reference or ""],
        procs=2,
        strategy="ddp",
        params={"epochs": 12, "register": MODEL},
        name="digits by two ranks",
        project=project,
        client=client,
    )
    show("job", client.jobs.page(job.workload.id, project=project))
    show("price", f"{dollars(job.nano_usd_per_hour)} an hour")
    ended = watching.watch(client, job)
    if ended.workload.state is not WorkloadState.SUCCEEDED:
        raise DemoError(f"the job ended {ended.workload.state}: {ended.workload.explanation}")
    show("first step", f"{ended.first_step_after_s or 0:.2f} s after it was submitted")
    show("cost", dollars(ended.cost_nano_usd))
    return ended


def _check(client: Client, project: str, job: JobOut) -> None:
    log = b"".join(client.jobs.logs(job.workload.id, project=project, rank=0)).decode()
    said = [line for line in log.splitlines() if line.startswith("accuracy on ")]
    if not said or float(said[-1].rpartition(" ")[2]) < 0.9:  # it reaches 0.97
        raise DemoError(f"the classifier did not learn; its log ends: {log[-300:]!r}")
    saved = client.jobs.checkpoints(job.workload.id, project=project)
    if not saved:
        raise DemoError("the job saved no checkpoint")
    show("result", said[-1])
    show("checkpoints", f"{len(saved)} kept, the latest at step {max(one.step for one in saved)}")


def _look_at_lineage(client: Client, project: str, job: JobOut, data: VersionOut) -> None:
    """Show that the data knows the job, and its run, that read it."""
    uses = client.datasets.uses("digits", data.number or 0, project=project)
    mine = [use for use in uses if use.job == job.workload.id]
    if not any(use.run for use in mine):
        raise DemoError(f"{data.reference} does not tell that the run of the job read it")
    show("lineage", f"{data.reference} → {job.workload.name} → run {mine[0].run or mine[-1].run}")


def _look_at_run(client: Client, project: str, job: JobOut) -> None:
    """Show the run the job has logged to, with what it reached."""
    found = list(
        client.runs.list(project=project, filter=f"tags.`slipway.job` = '{job.workload.id}'")
    )
    if not found or "accuracy" not in found[0].metrics:
        raise DemoError("the job logged no accuracy to its run")
    run = found[0]
    show("run", client.runs.page(run.id, project=project))
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(run.metrics.items()))
    show("metrics", metrics)


def _version_of(client: Client, project: str, job: JobOut) -> int:
    """Return the version of the model that the job has registered, and show it."""
    for version in client.models.versions(MODEL, project=project):
        details = client.models.version(MODEL, version.version, project=project)
        if f"registered {MODEL} version {version.version}" in _log_of(client, project, job):
            show("model", f"{client.url}/p/{project}/models/{MODEL}/versions/{version.version}")
            show("golden", f"{details.golden.rows if details.golden else 0} predictions recorded")
            return version.version
    raise DemoError(f"the job registered no version of {MODEL}")


def _log_of(client: Client, project: str, job: JobOut) -> str:
    return b"".join(client.jobs.logs(job.workload.id, project=project, rank=0)).decode()


def _promote(client: Client, project: str, number: int, data: VersionOut) -> None:
    """Declare gates, show how they stand, and promote the version through them."""
    rules = client.models.rules(project=project)
    wanted = [
        {"kind": "signature"},
        {"kind": "golden"},
        {"kind": "evaluation", "metric": "accuracy", "dataset": data.reference, "margin": -0.02},
    ]
    asked = RulesIn.model_validate(
        {
            "stages": rules.stages,
            "gates": [{"kind": "stage", "name": STAGE, "gates": wanted}],
            "revision": rules.revision,
        }
    )
    client.models.put_rules(asked, project=project)
    plan = client.models.plan(MODEL, number, project=project, stage=STAGE)
    for gate in plan.gates:
        show("gate", f"{gate.kind.value}: {'open' if gate.passed else 'closed'}. {gate.sentence}")
    client.models.promote(MODEL, number, project=project, stage=STAGE, sequence=plan.sequence)
    show("stage", f"{STAGE}: version {number}")


def _serve(client: Client, project: str, number: int) -> EndpointOut:
    """Create the endpoint, or promote the version to it by a canary; returns it once it serves."""
    try:
        client.endpoints.create(ENDPOINT, MODEL, project=project, version=STAGE)
    except Conflict:  # of an earlier demo
        client.endpoints.promote(
            ENDPOINT, project=project, version=STAGE, plan="canary", percents=[10, 50], bake_s=2
        )
    show("endpoint", client.endpoints.page(ENDPOINT, project=project))

    def look() -> EndpointOut | None:
        found = client.endpoints.get(ENDPOINT, project=project)
        if found.state == "failed":
            raise DemoError(f"the endpoint failed: {found.reason}")
        serving = {one.version: one.weight for one in found.revisions}
        return found if serving.get(str(number)) == 100 else None

    found = wait_for(look, "an endpoint that serves", within_s=SERVES_WITHIN_S)
    show("price", f"{dollars(found.nano_usd_per_hour)} an hour while it serves")
    return found


def _predict(client: Client, project: str, found: EndpointOut) -> None:
    """Ask for real predictions through the gateway and compare them with the labels."""
    key = client.endpoints.keys.create(ENDPOINT, "make demo", project=project, expires_in_days=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.csv"
        subprocess.run([sys.executable, EXAMPLE / "make_csv.py", file], check=True)
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [[float(cell) for cell in row] for row in list(csv.reader(lines))[1:]]
    asked = rows[-ASKED_DIGITS:]
    images = [[pixel / 16 for pixel in row[:-1]] for row in asked]
    with Endpoint(ENDPOINT, key=key.key, url=found.url) as endpoint:
        began = time.monotonic()
        scores = endpoint.predict(images)
        took_ms = (time.monotonic() - began) * 1000
    said = [one.index(max(one)) for one in scores]
    right = sum(label == int(row[-1]) for label, row in zip(said, asked, strict=True))
    if right < 0.9 * len(asked):
        raise DemoError(f"only {right} of {len(asked)} predictions are right")
    show("predictions", f"{right} of {len(asked)} digits right, answered in {took_ms:.0f} ms")
    show("ask it", f"{found.url}/invocations, with the key {key.prefix}…")


def _show_costs(client: Client, project: str, steps: Mapping[str, Sequence[str]]) -> None:
    """Print what the workloads of each step have cost, as the pages of spend tell it."""
    costs = {
        run.workload: run.nano_usd for run in client.spend.get(window="7d", project=project).runs
    }
    total = 0
    for name, workloads in steps.items():
        unknown = [workload for workload in workloads if workload not in costs]
        if unknown:
            raise DemoError(f"spend does not say what {unknown[0]} of the step {name} has cost")
        cost = sum(costs[workload] for workload in workloads)
        total += cost
        show(name, f"{dollars(cost)}, exactly {cost / 1e9:.9f} USD")
    show("in all", f"{dollars(total)}  {client.url}/p/{project}/spend")


def drive(client: Client) -> None:
    """Do every step; raises DemoError or SlipwayError at the first that fails."""
    with step("A project to work in"):
        project = _project(client)
        show("project", f"{client.url}/p/{project}")
    with step("This machine offers itself as a node"):
        name = wait_for(lambda: _a_node(client), "a node that is ready", within_s=NODE_WITHIN_S)
        show("node", f"{name}  {client.url}/settings/nodes")
    with step("The digits go in as a version of a dataset"):
        data = _data(client, project)
    with step("Train on two ranks (the first time, the node installs torch and MLflow)"):
        job = _train(client, project, data)
        _check(client, project, job)
        _look_at_lineage(client, project, job, data)
    with step("What it logged by plain MLflow calls"):
        _look_at_run(client, project, job)
    with step("The trained model is registered, and promoted through its gates"):
        number = _version_of(client, project, job)
        _promote(client, project, number, data)
    with step("An endpoint serves it once its golden predictions came back equal"):
        endpoint = _serve(client, project, number)
    with step("Real predictions through the gateway"):
        _predict(client, project, endpoint)
    with step("What this demo has cost"):
        replicas = client.endpoints.replicas(ENDPOINT, project=project)
        serving = [replica.workload for replica in replicas if replica.workload]
        _show_costs(client, project, {"training": [job.workload.id], "serving": serving})
    print(f"\nAll steps succeeded. Look around: {client.url}/p/{project}/endpoints", flush=True)


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description="Start Slipway and drive it once, on real data.")
    parser.add_argument("--exit", action="store_true", help="stop the platform at the end")
    arguments = parser.parse_args()
    url = env().url
    platform = Platform()
    try:
        wait_for(lambda: _is_ready(platform, url), "Slipway", within_s=READY_WITHIN_S)
        with Client(url, token=_token()) as client:
            drive(client)
    except (DemoError, SlipwayError) as error:
        print(f"\nslipway: the demo failed: {error}", file=sys.stderr, flush=True)
        platform.stop()
        return 1
    except KeyboardInterrupt:
        platform.stop()
        return 130
    return platform.stop() if arguments.exit else platform.stay()


if __name__ == "__main__":
    sys.exit(main())
