"""A demo beside other work: each step that waits says what for."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.loop import data, notebook, steps, training_run
from slipway import Client, train
from slipway.schemas.notebook_servers import NotebookState
from slipway.schemas.workloads import WorkloadState
from tests.portals import RunningPortal, portal
from tests.processes import wait_for

__all__ = ["portal"]
# A machine that has joined and takes no work, as one that other work holds.
_JOIN = """
from tests.portal.workloads.machines import make_machine
make_machine("small")
"""
TIER = {
    "name": "Busy",
    "slug": "busy",
    "resources": {"cpu_millis": 2000, "memory_bytes": 2**30},
    "nano_usd_per_hour": 1_000_000_000,
}


@pytest.fixture(scope="module")
def ada(portal: RunningPortal) -> Client:
    """The project of the demo in an installation whose only machine starts nothing."""
    done = portal.installation.manage("shell", "-c", _JOIN)
    assert done.returncode == 0, done.stderr
    with portal.client("root") as root:
        root.post("/tiers", json=TIER).raise_for_status()
    with portal.client("alice") as alice:
        alice.post("/projects", json={"name": "Demo", "slug": data.PROJECT}).raise_for_status()
    return Client(portal.url, token=portal.tokens["alice"])


@pytest.fixture
def output(capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Wait until the demo has printed these words; returns all that it has printed."""
    lines: list[str] = []

    def printed(words: str) -> str:
        def text() -> str:
            lines.append(capfd.readouterr().out)
            return "".join(lines) if words in "".join(lines) else ""

        try:
            return wait_for(text, f"output with {words!r}", within_s=20, every_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {''.join(lines)!r}") from None

    return printed


@pytest.mark.thorough
def test_a_training_that_is_queued_says_why(
    ada: Client, tmp_path: Path, output: Callable[[str], str]
) -> None:
    (tmp_path / "train.py").write_text("print(1)\n", encoding="utf-8")
    job = train("train.py", folder=tmp_path, project=data.PROJECT, client=ada).workload.id
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(training_run.JobWatch(ada, job).until_it_ends)
        try:
            assert "· queued: Waiting: " in output("Waiting")
        finally:  # or the step would wait for long
            ada.jobs.cancel(job, project=data.PROJECT)
        assert step.result(timeout=60).workload.state is WorkloadState.STOPPED


@pytest.mark.thorough
def test_a_notebook_that_is_queued_says_why(ada: Client, output: Callable[[str], str]) -> None:
    server = ada.notebooks.launch("busy", project=data.PROJECT).id
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(notebook.wait_until, ada, server, NotebookState.STOPPED, within_s=60)
        try:
            assert "  · Waiting" in output("Waiting")
        finally:
            ada.notebooks.stop(server, project=data.PROJECT)
        assert step.result(timeout=60).state is NotebookState.STOPPED


def test_a_wait_without_a_reason_names_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, output: Callable[[str], str]
) -> None:
    monkeypatch.setattr(steps, "_REPORT_EVERY_S", 0.05)

    def alerts() -> bool | None:
        return None

    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(steps.wait_for, alerts, "alerts about drift", within_s=1.0, every_s=0.01)
        assert "0 s: waiting for alerts about drift" in output("waiting")
        with pytest.raises(steps.DemoError, match="alerts about drift: not within 1 s"):
            step.result(timeout=60)
