"""`make demo`, as a newcomer runs it: every step succeeds, again finds it all, and nothing is left.

What each step came to is asked for at the API, as one of the people whom the demo lets in.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.loop.browser import Browser
from slipway import Client
from slipway.schemas.accounts import Scope
from slipway.schemas.notebook_servers import NotebookState
from slipway.schemas.pipelines import PipelineRunState
from slipway.schemas.registry import RequestState
from slipway.schemas.sweeps import SweepState
from slipway.schemas.workloads import WorkloadState
from tests.processes import Program, clean_environment, free_ports, wait_for
from tests.slurm_cluster import missing_programs, running_slurm

# Everything is installed and started from nothing, on a machine that other tests keep busy.
FIRST_WITHIN_S, AGAIN_WITHIN_S = 1200, 600
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(FIRST_WITHIN_S + 3 * AGAIN_WITHIN_S),
]

PROJECT, MODEL, ENDPOINT = "demo", "digits", "demo-digits"
_PORTS = (
    "PORTAL",
    "CONTROL_HEALTH",
    "REDIS",
    "GATEWAY",
    "NOTEBOOKS",
    "NOTEBOOKS_HUB",
    "NOTEBOOKS_PROXY",
)
Start = Callable[..., Program]


@contextmanager
def demos(folder: Path, **changes: str) -> Iterator[Start]:
    """Yield what starts a demo of an installation of its own; what still runs is killed."""
    ports = zip(_PORTS, free_ports(len(_PORTS)), strict=True)
    environ = clean_environment() | {f"SLIPWAY_{name}_PORT": str(port) for name, port in ports}
    environ |= {"SLIPWAY_DATA_DIR": str(folder / "data")} | changes
    started: list[Program] = []

    def start(*arguments: str) -> Program:
        argv = [sys.executable, "scripts/demo.py", *arguments]
        started.append(Program(argv, env=environ, output=folder / f"demo-{len(started)}.log"))
        return started[-1]

    try:
        yield start
    finally:
        for program in started:
            program.end()


def succeeded(demo: Program, *, within_s: float) -> str:
    """Wait until a demo has ended; returns what it said."""
    assert demo.wait(within_s) == 0, demo.text()
    assert "All steps succeeded." in demo.text()
    return demo.text()


@contextmanager
def signed_in(output: str, name: str) -> Iterator[Client]:
    """Yield a client of one of the people, by the address and the password that were printed."""
    match = re.search(rf"sign in: +({name}@localhost), password (\S+)", output)
    place = re.search(r"Look around: (http://\S+)/p/demo", output)
    assert match
    assert place
    with Browser(place[1]) as browser:
        assert browser.sign_in(match[1], match[2])
        token = browser.create_token("test", [scope for scope in Scope if scope is not Scope.ADMIN])
    with Client(place[1], token=token) as client:
        yield client


def test_the_demo_drives_the_whole_loop_and_finds_it_again(tmp_path: Path) -> None:
    with demos(tmp_path) as start:
        first = succeeded(start("--exit"), within_s=FIRST_WITHIN_S)
        assert not _still_running(tmp_path)

        staying = start()
        again = staying.wait_for_text("All steps succeeded.", within_s=AGAIN_WITHIN_S)
        _start_another_beside(start, staying)
        with signed_in(again, "ada") as client:
            _look_at_data_and_notebook(client)
            _look_at_training(client)
            _look_at_sweep_and_pipeline(client)
            _look_at_registry(client)
            _look_at_endpoint(client)
            _look_at_monitoring(client)
            _look_at_money(client)
            _look_at_tokens(client)
        os.killpg(staying.pid, signal.SIGINT)
        assert staying.wait(120) == 0, staying.text()

    for output in (first, again):
        _look_at_words(output)
    assert _jobs_of(first) == _jobs_of(again), "nothing is trained twice"
    assert "first administrator: " in first
    assert not _still_running(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_programs()), reason="Slurm is not installed")
def test_the_demo_trains_in_a_pool_of_slurm(tmp_path: Path) -> None:
    with (
        # The nodes have as much as the cheapest tier of any machine, which Slurm only counts.
        running_slurm(tmp_path / "slurm", memory_mb=2**20) as cluster,
        # The agents of the pool keep their files in the home folder.
        demos(tmp_path, SLURM_CONF=str(cluster.conf), HOME=str(tmp_path)) as start,
    ):
        output = succeeded(start("--exit", "--pool", "slurm"), within_s=FIRST_WITHIN_S)
        jobs = cluster.run("squeue", "--noheader", "--states=all", "--format=%T").split()
    assert "/settings/pools/demo-slurm" in output
    assert set(jobs) == {"COMPLETED"}  # Slurm forgets jobs after five minutes
    assert not _still_running(tmp_path)


def _start_another_beside(start: Start, staying: Program) -> None:
    """What runs already is used, and not stopped by whoever only uses it."""
    beside = start("--exit")
    beside.wait_for_text("Slipway runs already", within_s=AGAIN_WITHIN_S)
    beside.wait_for_text("  done in ", within_s=AGAIN_WITHIN_S)
    os.killpg(beside.pid, signal.SIGINT)
    assert beside.wait(120) != 0, beside.text()
    assert staying.process.poll() is None, "the one that stays is not stopped by another"


def _jobs_of(output: str) -> set[str]:
    return set(re.findall(r"/jobs/(wl_\w+)", output))


def _look_at_words(output: str) -> None:
    """Every step says its time and its cost, and leads to what it made."""
    steps = re.findall(r"^▸ ", output, re.MULTILINE)
    done = re.findall(r"^  done in [0-9.]+ s, cost \$[0-9.]+$", output, re.MULTILINE)
    assert len(steps) == len(done) == 19
    for path in ("", "/spend", "/registry-rules", "/endpoints/demo-digits", "/datasets/digits/v/1"):
        assert f"/p/demo{path}" in output
    for address in ("/models/digits/versions/1", "/models/digits/versions/2", "/compare?run="):
        assert f"/p/demo{address}" in output
    assert re.search(r"  opened: +http://127\.0\.0\.2:\S+/lab", output)
    assert re.search(r"  result: +3 nearest neighbours: accuracy 0\.9[0-9]+ on 360", output)
    assert re.search(
        r"  best: +accuracy 0\.9[0-9]+ in trial [0-7]: hidden (16|32|64), lr 0\.", output
    )
    assert re.search(r"  chosen: +[13] neighbours: accuracy 0\.9", output)
    assert "  reused:      all 5 steps of the second run" in output
    answered = re.search(r"  predictions: +([0-9]+) of 200 digits right", output)
    assert answered
    assert int(answered[1]) >= 180
    assert re.search(r"  alarm: +[0-9]+ inputs differ from the baseline in two", output)
    assert re.search(r"  alarm: +Measured accuracy is .* below the range of the", output)
    assert re.search(r"  budget: +\$[0-9.]+ of \$25\.00 used", output)


def _look_at_data_and_notebook(client: Client) -> None:
    (version,) = client.datasets.versions("digits", project=PROJECT)
    (table,) = client.datasets.tables("digits", version.number or 0, project=PROJECT)
    assert table.statistics.rows == 1797
    (server,) = client.notebooks.list(project=PROJECT, mine=True)
    assert (server.name, server.state) == ("neighbours", NotebookState.STOPPED)
    assert server.cost_nano_usd > 0
    (file,) = client.notebook_files.list(project=PROJECT, search="neighbours.ipynb")
    assert file.latest.outputs_digest


def _look_at_training(client: Client) -> None:
    all_jobs = list(client.jobs.list(project=PROJECT))
    jobs = {int(job.params["epochs"]): job for job in all_jobs if job.script == "train.py"}
    assert sorted(jobs) == [4, 16]
    runs = []
    for epochs, job in jobs.items():
        assert (job.workload.state, job.workload.procs) == (WorkloadState.SUCCEEDED, 2)
        assert job.cost_nano_usd > 0
        assert client.jobs.checkpoints(job.workload.id, project=PROJECT)
        of_job = f"tags.`slipway.job` = '{job.workload.id}'"
        (run,) = client.runs.list(project=PROJECT, filter=of_job)
        (curve,) = client.runs.curves([run.id], ["accuracy"], project=PROJECT)
        assert curve.total == epochs, "a point after each epoch"
        runs.append(run.id)
    comparison = client.runs.compare(runs, project=PROJECT)
    assert {"accuracy", "loss"} <= set(comparison.metrics)
    assert max(run.metrics["accuracy"] for run in comparison.runs) >= 0.9
    (search,) = [job for job in all_jobs if job.script == "search.py"]
    assert (search.workload.state, search.workload.procs) == (WorkloadState.SUCCEEDED, 1)
    children = list(client.runs.list(project=PROJECT, filter="params.batch != ''"))
    assert len(children) == 6
    for run in children:
        paths = {it.path for it in client.runs.artifacts(run.id, project=PROJECT)}
        assert {"charts", "images", "wrong_digits.json"} <= paths
        assert run.metrics["accuracy"] > 0.5


def _look_at_sweep_and_pipeline(client: Client) -> None:
    (sweep,) = client.sweeps.list(project=PROJECT)
    assert (sweep.state, sweep.started, sweep.failed) == (SweepState.FINISHED, 8, 0)
    assert sweep.complete + sweep.pruned == 8
    assert sweep.pruned
    trials = list(client.sweeps.trials(sweep.id, project=PROJECT))
    *_, first = runs = list(client.pipelines.list(project=PROJECT))  # the newest first
    assert [run.state for run in runs] == [PipelineRunState.SUCCEEDED] * 4
    assert first.cost_nano_usd > 0
    assert [run.cost_nano_usd for run in runs[:-1]] == [0] * 3
    steps = client.pipelines.get(first.id, project=PROJECT).steps
    jobs = {job.workload.id for job in client.jobs.list(project=PROJECT)}
    of_both = {trial.job for trial in trials} | {step.job for step in steps if step.job}
    assert len(of_both) == 8 + 4
    assert len(jobs) == 3 + len(of_both)
    assert of_both < jobs


def _look_at_registry(client: Client) -> None:
    versions = sorted(client.models.versions(MODEL, project=PROJECT), key=lambda it: it.version)
    assert [listed.version for listed in versions] == [1, 2]
    for version in (1, 2):
        details = client.models.version(MODEL, version, project=PROJECT)
        assert details.golden
        assert details.author
        (request,) = client.models.requests(MODEL, version, project=PROJECT)
        assert request.state is RequestState.USED
        assert request.decided_by
        assert request.decided_by.id not in (request.requested_by.id, details.author.id)
    moves = [
        move
        for move in client.models.history(MODEL, project=PROJECT)
        if move.target == "Production"
    ]
    assert sorted(move.version or 0 for move in moves) == [1, 2]
    for move in moves:
        assert [gate.kind.value for gate in move.gates] == [
            *("signature", "golden", "evaluation", "approval")
        ]
        assert all(gate.passed for gate in move.gates)
        assert move.override_reason is None


def _look_at_endpoint(client: Client) -> None:
    (endpoint,) = client.endpoints.list(project=PROJECT)
    current = client.endpoints.get(endpoint.name, project=PROJECT)
    assert (current.name, current.state) == (ENDPOINT, "serving")
    assert {
        revision.version: revision.weight for revision in current.revisions if revision.weight
    } == {"2": 100}
    rollouts = list(client.endpoints.rollouts(ENDPOINT, project=PROJECT))
    canaries = [
        (rollout.percents, rollout.state) for rollout in rollouts if rollout.plan == "canary"
    ]
    assert len(canaries) == 1
    assert canaries[0][0][:2] == [10, 50]
    assert canaries[0][1] == "done"
    live = [
        key for key in client.endpoints.keys.list(ENDPOINT, project=PROJECT) if not key.revoked_at
    ]
    assert sorted(key.name for key in live) == ["a camera", "make demo"]


def _look_at_monitoring(client: Client) -> None:
    alerts = list(client.endpoints.monitoring.alerts(ENDPOINT, project=PROJECT))
    assert {"drift", "quality"} <= {alert.kind for alert in alerts}

    def all_labelled() -> bool:
        # Two demos, 600 labels each; what came last is read a moment later.
        shown = client.endpoints.monitoring.show(ENDPOINT, project=PROJECT)
        return shown.quality.labelled == 2 * 600

    wait_for(all_labelled, "labels of both demos", within_s=120)
    quality = client.endpoints.monitoring.show(ENDPOINT, project=PROJECT).quality
    assert quality.figures["accuracy"] < 0.7


def _look_at_money(client: Client) -> None:
    (budget,) = client.budgets.list()
    assert budget.name == "project demo"
    assert 0 < budget.spent_nano_usd < budget.limit_nano_usd
    spend = client.spend.get(project=PROJECT)
    assert sum(kind.nano_usd for kind in spend.by_kind) == spend.nano_usd
    costs = {run.workload: run.nano_usd for run in spend.runs}
    for job in client.jobs.list(project=PROJECT):
        assert costs[job.workload.id] == job.cost_nano_usd


def _look_at_tokens(client: Client) -> None:
    tokens = [token for token in client.tokens.list() if token.name == "make demo"]
    assert all(token.revoked_at for token in tokens)


def _still_running(folder: Path) -> list[str]:
    """Return the commands of processes that name the folder in their environment."""
    commands = []
    for process in Path("/proc").iterdir():
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return commands
