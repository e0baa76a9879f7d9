"""Notebooks as jobs: what the platform starts is run here, and tells the portal by itself."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest

import slipway
from slipway.errors import Forbidden, InvalidInput
from slipway.resources.jobs import job_body
from slipway.schemas.notebook_files import MAX_NOTEBOOK_BYTES, CheckReport, NotebookRunOut
from slipway.snapshots import take_snapshot
from tests.live import ROOT, LivePortal
from tests.portal.notebooks.notebooks import code, notebook, words
from tests.portal.training.lab import Lab, Task, client_of
from workers.node_agent.snapshots import unpack

PARAMETERS = code("rate = 0.1\nname = 'a'  # of the run\n", count=1, tags=["parameters"])


@pytest.fixture(scope="module")
def lab(portal: LivePortal) -> Iterator[Lab]:
    made = Lab(portal)
    yield made
    made.end()


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with client_of(portal, "alice") as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> str:
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


class Bench:
    """Runs what a machine is told to run, in a folder of its own."""

    def __init__(self, lab: Lab, alice: slipway.Client, project: str, folder: Path) -> None:
        self.lab, self.alice, self.project, self._folder = lab, alice, project, folder

    def save(self, path: str, content: bytes) -> str:
        """Save a notebook; returns its id."""
        return self.alice.notebook_files.save(path, content, project=self.project).id

    def place(self, workload: str) -> Task:
        """Let the scheduler place a run."""
        return self.lab.place(self.alice.jobs.get(workload, project=self.project))

    def carry_out(self, task: Task) -> subprocess.CompletedProcess[str]:
        """Run a task as its node would: its code, its command, its variables."""
        code_folder = self._folder / f"code-{task.epoch}-{secrets.token_hex(2)}"
        archive = code_folder.with_suffix(".tar")
        archive.write_bytes(self.lab.fetch_code(task))
        unpack(archive, code_folder)
        argv = [
            sys.executable if argument == "python" else argument for argument in task.spec["argv"]
        ]
        kept = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8"}
        done = subprocess.run(
            argv,
            cwd=code_folder,
            env=kept | task.spec["env"] | {"PYTHONPATH": str(ROOT / "platform")},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        reason = "exit" if done.returncode else "completed"
        self.lab.report(task, 1, "running")
        self.lab.report(task, 2, "ended", reason=reason, exit_code=done.returncode)
        return done

    def run(self, started: NotebookRunOut) -> tuple[NotebookRunOut, Any]:
        """Carry a run out; returns how it stands, and its output notebook."""
        done = self.carry_out(self.place(started.workload))
        run = self.alice.notebook_files.run(started.workload, project=self.project)
        assert run.has_output, done.stdout + done.stderr
        with self.alice.notebook_files.output(started.workload, project=self.project) as body:
            return run, json.loads(b"".join(body))


@pytest.fixture
def bench(lab: Lab, alice: slipway.Client, project: str, tmp_path: Path) -> Bench:
    return Bench(lab, alice, project, tmp_path)


@pytest.mark.thorough
def test_a_notebook_that_gives_the_same_is_verified(bench: Bench) -> None:
    content = notebook(
        words("# Sum"), code("x = 20", count=1), code("print(x + 1)", count=2, prints="21\n")
    )
    made = bench.save("sum.ipynb", content)
    started = bench.alice.notebook_files.verify(made, project=bench.project, tier=bench.lab.tier)
    assert (started.purpose, started.version, started.passed) == ("verify", 1, None)
    waiting = bench.alice.notebook_files.get(made, project=bench.project)
    assert waiting.badge == "checking"
    run, output = bench.run(started)
    assert run.passed is True
    assert run.report is not None
    assert (run.report.code_cells, run.report.ran, run.report.findings) == (2, 2, [])
    assert output["cells"][2]["outputs"][0]["text"] == ["21\n"]
    assert bench.alice.notebook_files.get("sum.ipynb", project=bench.project).badge == "verified"
    bench.save("sum.ipynb", notebook(code("print(3)", count=1, prints="3\n")))
    changed = bench.alice.notebook_files.get(made, project=bench.project)
    assert (changed.badge, changed.latest.number) == ("changed", 2)


@pytest.mark.thorough
def test_hidden_state_order_and_other_results_are_told_cell_by_cell(bench: Bench) -> None:
    content = notebook(
        code("import itertools", count=1),
        code("print(2)", count=4, prints="3\n"),
        code("print(late)", count=6, prints="9\n"),
        code("late = 9", count=5),
    )
    made = bench.save("hidden.ipynb", content)
    started = bench.alice.notebook_files.verify(made, project=bench.project, tier=bench.lab.tier)
    run, _ = bench.run(started)
    assert run.passed is False
    assert run.report is not None
    findings = {(finding.cell, finding.kind): finding for finding in run.report.findings}
    assert set(findings) == {(2, "differs"), (3, "hidden_state"), (4, "out_of_order")}
    assert (findings[2, "differs"].saved, findings[2, "differs"].fresh) == ("3", "2")
    assert "late" in findings[3, "hidden_state"].message
    assert "cell 4" in findings[3, "hidden_state"].next_step
    assert bench.alice.notebook_files.get(made, project=bench.project).badge == "failed"


def test_a_run_takes_parameters_and_keeps_its_output(bench: Bench) -> None:
    content = notebook(PARAMETERS, code("print(rate * 2, name)", count=2, prints="0.2 a\n"))
    made = bench.save("folder/train.ipynb", content)
    started = bench.alice.notebook_files.start(
        made, project=bench.project, tier=bench.lab.tier, params={"rate": 0.5, "name": "b"}
    )
    run, output = bench.run(started)
    assert (run.purpose, run.params) == ("run", {"rate": "0.5", "name": "b"})
    assert output["cells"][2]["outputs"][0]["text"] == ["1.0 b\n"]


@pytest.mark.thorough
def test_a_failing_cell_fails_the_job_and_its_output_shows_where(bench: Bench) -> None:
    content = notebook(code("1 / 0"), code("print('never')"))
    made = bench.save("fails.ipynb", content)
    started = bench.alice.notebook_files.start(made, project=bench.project, tier=bench.lab.tier)
    done = bench.carry_out(bench.place(started.workload))
    assert done.returncode == 1
    assert "cell 1: ZeroDivisionError" in done.stderr
    with bench.alice.notebook_files.output(started.workload, project=bench.project) as body:
        output = json.loads(b"".join(body))
    assert output["cells"][0]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert output["cells"][1]["execution_count"] is None


@pytest.mark.thorough
def test_an_output_that_is_too_large_is_shortened_by_cell_and_says_so(bench: Bench) -> None:
    content = notebook(
        code("for i in range(30): print('x' * 1_000_000)"), code("print('after')"), code("1 + 1")
    )
    made = bench.save("prints.ipynb", content)
    started = bench.alice.notebook_files.start(made, project=bench.project, tier=bench.lab.tier)
    done = bench.carry_out(bench.place(started.workload))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "[slipway] The output notebook is shortened: cell 1: " in done.stderr
    with bench.alice.notebook_files.output(started.workload, project=bench.project) as body:
        whole = b"".join(body)
    assert len(whole) <= MAX_NOTEBOOK_BYTES
    read = nbformat.reads(whole.decode(), as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(read)
    first, second, third = read.cells
    assert "MiB of the 28.6 MiB that this cell printed" in first.outputs[1].text
    assert second.outputs[0].text == "after\n"
    assert third.outputs[0].data["text/plain"] == "2"


def test_what_is_too_large_or_no_notebook_is_refused_and_never_cut(bench: Bench) -> None:
    made = bench.save("own.ipynb", notebook(code("1")))
    started = bench.alice.notebook_files.start(made, project=bench.project, tier=bench.lab.tier)
    task = bench.place(started.workload)
    env = task.spec["env"]
    address = f"{env['SLIPWAY_URL']}/api/v1/projects/{bench.project}/notebook-runs"
    whole = notebook(code("1", prints="x" * MAX_NOTEBOOK_BYTES))
    for body, code_of_problem in ((whole, "notebook_too_large"), (whole[:5_000], "not_a_notebook")):
        answer = httpx.put(
            f"{address}/{started.workload}/output?path=own.ipynb",
            content=body,
            headers={
                "Authorization": f"Bearer {env['SLIPWAY_TOKEN']}",
                "Content-Type": "application/octet-stream",
            },
            timeout=60,
        )
        assert (answer.status_code, answer.json()["code"]) == (422, code_of_problem)
    run = bench.alice.notebook_files.run(started.workload, project=bench.project)
    assert not run.has_output


@pytest.mark.thorough
def test_a_notebook_beside_its_code_runs_as_a_job_too(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "with-code"
    folder.mkdir()
    (folder / "helper.py").write_text("ANSWER = 42\n")
    (folder / "use.ipynb").write_bytes(notebook(code("import helper\nprint(helper.ANSWER)")))
    with take_snapshot(folder) as snapshot:
        bench.alice.snapshots.upload(snapshot, project=bench.project)
        body = job_body(script="use.ipynb", snapshot=snapshot.digest, tier=bench.lab.tier)
    job = bench.alice.jobs.submit_body(body, project=bench.project)
    done = bench.carry_out(bench.lab.place(job))
    assert done.returncode == 0, done.stderr
    run = bench.alice.notebook_files.run(job.workload.id, project=bench.project)
    assert (run.path, run.version, run.has_output) == ("use.ipynb", None, True)


def test_only_the_job_itself_tells_how_it_ran(bench: Bench) -> None:
    made = bench.save("own.ipynb", notebook(code("1")))
    started = bench.alice.notebook_files.verify(made, project=bench.project, tier=bench.lab.tier)
    with pytest.raises(Forbidden, match="Only the job itself"):
        _report(bench, started.workload)


def test_a_tier_that_is_none_is_refused_before_anything_is_queued(bench: Bench) -> None:
    made = bench.save("tier.ipynb", notebook(code("1")))
    with pytest.raises(InvalidInput, match="no tier"):
        bench.alice.notebook_files.verify(made, project=bench.project, tier="none-such")
    assert not [*bench.alice.notebook_files.runs(made, project=bench.project)]


def _report(bench: Bench, workload: str) -> None:
    report = CheckReport(passed=True, code_cells=0, ran=0, duration_s=0.0)
    place = ("projects", bench.project, "notebook-runs", workload, "report")
    bench.alice.notebook_files._connection.fetch(NotebookRunOut, "PUT", *place, body=report)
