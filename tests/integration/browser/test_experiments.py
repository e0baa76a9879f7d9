"""What unmodified MLflow clients log, seen in a real browser: curves that move, runs compared."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.browser.conftest import PATIENCE_MS, Window, address_of
from tests.integration.browser.test_axe import barriers
from tests.jobs import Jobs
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# Logs a point, waits until it may go on, and logs a hundred more; two short runs follow.
CLIENT = """
import sys
import mlflow

mlflow.set_experiment("digits")
with mlflow.start_run(run_name="moving") as run:
    mlflow.log_params({"lr": "0.1", "opt": "sgd"})
    mlflow.log_metric("loss", 2.0, step=0)
    print("run", run.info.run_id, flush=True)
    sys.stdin.readline()
    for step in range(1, 101):
        mlflow.log_metric("loss", 2 / (1 + step), step=step)
    page = "<p>here</p><script>document.body.textContent = self.origin</script>"
    mlflow.log_text(page, "report.html")
for lr in ("0.2", "0.3"):
    with mlflow.start_run(run_name=f"lr-{lr}"):
        mlflow.log_param("lr", lr)
        mlflow.log_metric("loss", float(lr), step=1)
print("done", flush=True)
"""
JOB = """
import mlflow
for step in range(200):
    mlflow.log_metric("loss", 1 / (1 + step), step=step)
"""


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway with a node and MLflow's server, and the project curves of Alice's."""
    running = whole_slipway()
    with running.client("alice") as api:
        api.post("/projects", json={"name": "Curves", "slug": "curves"}).raise_for_status()
    wait_for(lambda: _tracks(running), "answer of MLflow's server", within_s=60)
    return running


def _tracks(running: RunningPortal) -> bool:
    with running.client("alice") as api:
        path = f"{running.url}/mlflow/curves/api/2.0/mlflow/registered-models/search"
        return api.get(path).is_success


def _client(running: RunningPortal) -> "subprocess.Popen[str]":
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        env=kept
        | {
            "MLFLOW_TRACKING_URI": f"{running.url}/mlflow/curves",
            "MLFLOW_TRACKING_TOKEN": running.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_curve_moves_while_a_client_logs_and_three_runs_are_compared(
    lab: RunningPortal, chromium: Browser, axe: str
) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    with _client(lab) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        run_id = client.stdout.readline().split()[1]
        window.go(f"/p/curves/runs/{run_id}")
        page = window.page
        chart = page.locator('figure[data-key="loss"] .chart')
        expect(chart).to_have_attribute("data-total", "1", timeout=PATIENCE_MS)
        client.stdin.write("go\n")
        client.stdin.flush()
        expect(chart).to_have_attribute("data-total", "101", timeout=PATIENCE_MS)
        expect(page.locator("#run-state")).to_contain_text("finished", timeout=PATIENCE_MS)
        assert "done" in client.stdout.read().splitlines()
        assert client.wait(timeout=60) == 0
    assert barriers(window, axe) == []
    window.go(f"/p/curves/runs/{run_id}?path=report.html")
    frame = page.frame_locator("iframe.artifact-page")
    expect(frame.locator("body")).to_have_text("null", timeout=PATIENCE_MS)
    window.go("/p/curves/experiments")
    page.get_by_role("link", name="digits").click()
    # A button works once enough runs are selected, and says so until then.
    compare = page.get_by_role("button", name="Compare", exact=True)
    delete = page.get_by_role("button", name="Delete", exact=True)
    expect(compare).to_be_disabled()
    expect(compare).to_have_attribute("title", "Select two or more runs first.")
    expect(delete).to_be_disabled()
    window.says("Select two or more runs to compare them.")
    page.get_by_text("Move", exact=True).click()
    expect(page.get_by_role("button", name="Move runs")).to_be_hidden()
    page.get_by_label("Choose moving").check()
    expect(compare).to_be_disabled()
    expect(delete).to_be_enabled()
    window.says("1 run selected. Select another one to compare them.")
    for name in ("lr-0.2", "lr-0.3"):
        page.get_by_label(f"Choose {name}").check()
    window.says("3 runs selected")
    page.get_by_role("button", name="Compare", exact=True).click()
    window.says("3 runs side by side")
    expect(page.locator("#relations")).to_have_attribute("data-drawn", "3", timeout=PATIENCE_MS)
    expect(page.locator("figure[data-key] .chart")).to_have_attribute(
        "data-total", "103", timeout=PATIENCE_MS
    )
    assert barriers(window, axe) == []
    context.close()
    assert window.faults == []


def _log_long_run(lab: RunningPortal, number: int) -> str:
    """Log 1,500 points, of which 500 are negative, 30 that are no numbers, and 14 parameters."""
    with lab.client("alice") as api:
        address = f"{lab.url}/mlflow/curves/api/2.0/mlflow/runs"
        body = {"experiment_id": "0", "run_name": f"long-{number}", "start_time": 1}
        run_id = str(api.post(f"{address}/create", json=body).json()["run"]["info"]["run_id"])
        points = [
            {"key": "long", "value": float(at - 500), "step": at, "timestamp": at}
            for at in range(1_500)
        ]
        points += [{"key": "odd", "value": "NaN", "step": at, "timestamp": at} for at in range(30)]
        if number == 0:
            points.append({"key": "alone", "value": 1.0, "step": 0, "timestamp": 0})
        params = [{"key": f"p{at:02}", "value": str(number)} for at in range(14)]
        for part in ({"metrics": points[:900], "params": params}, {"metrics": points[900:]}):
            logged = api.post(f"{address}/log-batch", json={"run_id": run_id, **part})
            assert logged.is_success, logged.text
        done = {"run_id": run_id, "status": "FINISHED", "end_time": 2}
        assert api.post(f"{address}/update", json=done).is_success
    return run_id


@pytest.mark.thorough
def test_charts_say_what_they_do_not_draw(lab: RunningPortal, chromium: Browser) -> None:
    runs = [_log_long_run(lab, number) for number in range(2)]
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/curves/runs/{runs[0]}")
    page = window.page
    note = page.locator('figure[data-key="long"] [data-left-out]')
    expect(note).to_contain_text("of 1,500 points shown", timeout=PATIENCE_MS)
    odd = page.locator('figure[data-key="odd"] [data-left-out]')
    expect(odd).to_have_text("10 NaN or infinite points are not shown.")
    expect(note).not_to_contain_text("log scale")
    page.get_by_label("Log scale").check()
    expect(note).to_contain_text("of 0 or less are not shown on the log scale")
    alone = page.locator('figure[data-key="alone"] [data-left-out]')
    expect(alone).to_be_hidden()
    window.go(f"/p/curves/compare?run={runs[0]}&run={runs[1]}")
    page.locator("[data-parallel-add]").select_option("m:alone", timeout=PATIENCE_MS)
    expect(page.locator("[data-parallel-note]")).to_contain_text(
        "1 value is missing, NaN or infinite"
    )
    page.locator("[data-scatter-x]").select_option("m:alone")
    expect(page.locator("[data-scatter-note]")).to_have_text(
        "1 of 2 runs lacks a finite value of alone or long."
    )
    context.close()
    assert window.faults == []


@pytest.mark.thorough
def test_a_job_logs_by_plain_mlflow_without_any_set_up(lab: RunningPortal) -> None:
    with lab.client("alice") as api:
        jobs = Jobs(api, project="curves")
        job = jobs.submit(JOB, name="plain", procs=2)
        jobs.wait_for(job, "succeeded", "failed", within_s=120)
        log = api.get(f"/projects/curves/jobs/{job}/logs").text
        query = {"filter": f"tags.`slipway.job` = '{job}'"}
        (run,) = api.get("/projects/curves/runs", params=query).json()["items"]
        curves = {"run": run["id"], "key": "loss", "points": "1000"}
        (curve,) = api.get("/projects/curves/runs/curves", params=curves).json()
        shown = api.get(f"/projects/curves/runs/{run['id']}").json()
    assert len({point["step"] for point in curve["points"]}) == 200, log
    assert (run["status"], run["tags"]["slipway.ranks"]) == ("FINISHED", "1 x 2")
    assert (shown["experiment"], shown["job"]) == ("plain", job)
