"""A budget of cents, in a real browser: alerts, the graceful stop, the raise, the resumed job."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import slipway
from tests.integration.browser.conftest import PATIENCE_MS, WIDE, Window, address_of
from tests.integration.browser.test_axe import barriers
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# Learns by plain arithmetic, saves after each step, and tells at the end what it has learned.
SCRIPT = """
import json, os, time
from pathlib import Path
import slipway.job as job

state = Path(os.environ["SLIPWAY_PERSISTENT_DIR"]) / "state.json"
step, value = json.loads(state.read_text()) if state.exists() else (0, 1.0)
print("begins at step", step, flush=True)
while step < 80 and not job.should_stop():
    step, value = step + 1, value * 0.97 + step * 0.001
    part = state.with_suffix(".part")
    part.write_text(json.dumps([step, value]))
    part.replace(state)
    time.sleep(0.5)
print("saved at step", step, flush=True)
if step == 80:
    print(f"final metric {value:.9f}", flush=True)
"""

# A tenth of a cent a second.
DEAR = {
    "name": "Dear",
    "slug": "dear",
    "resources": {"cpu_millis": 500, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 3_600_000_000,
}


def _expected() -> str:
    value = 1.0
    for step in range(80):
        value = value * 0.97 + step * 0.001
    return f"final metric {value:.9f}"


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway with a node, the project cents of Alice's, and a dear tier."""
    running = whole_slipway()
    with running.client("alice") as api:
        api.post("/projects", json={"name": "Cents", "slug": "cents"}).raise_for_status()
    with running.client("root") as api:
        api.post("/tiers", json=DEAR).raise_for_status()
    return running


@pytest.fixture
def alice(lab: RunningPortal, chromium: Browser) -> Iterator[Window]:
    """A browser in which Alice is signed in; faults in it fail the test."""
    context = chromium.new_context(viewport=WIDE)
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice")
    window.is_at("/")
    yield window
    context.close()
    assert window.faults == []


def test_a_budget_of_cents_alerts_stops_and_lets_resume_to_the_same_metric(
    alice: Window, lab: RunningPortal, tmp_path: Path, axe: str
) -> None:
    page = alice.page
    alice.go("/spend/budgets?group=cents")
    page.get_by_label("Limit in dollars").fill("0.065")
    page.get_by_role("button", name="Set budget").click()
    page.wait_for_url(re.compile(r"/spend/budgets/bdg_"))
    budget = page.url.removeprefix(alice.url)

    (tmp_path / "train.py").write_text(SCRIPT)
    alice.go("/p/cents/jobs/new")
    page.locator("#id_code").set_input_files(tmp_path / "train.py")
    expect(page.locator("#code-state")).to_contain_text("uploaded", timeout=PATIENCE_MS)
    page.get_by_role("radio", name=re.compile("Dear")).check()
    expect(page.locator("#quote")).to_contain_text("no history yet")
    expect(page.locator("#quote")).to_contain_text("$0.065 of $0.065 left")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/wl_"), timeout=PATIENCE_MS)
    job = page.url.removeprefix(alice.url)
    expect(page.locator("#workload-state")).to_contain_text("Running on node", timeout=60_000)

    with slipway.Client(lab.url, lab.tokens["alice"]) as client:
        budget_id = budget.rpartition("/")[2]
        # A lower limit brings the moment nearer than the minute that was set aside.
        client.budgets.edit(budget_id, limit_nano_usd=20_000_000)
        alice.go(budget)
        for level in (50, 80, 100):
            words = f"has reached {level} % of its budget"
            expect(page.locator("#budget-alerts")).to_contain_text(words, timeout=60_000)
        expect(page.locator("#budget-now")).to_contain_text("Used up")
        assert barriers(alice, axe) == []
        alice.go(job)
        expect(page.locator("#workload-state")).to_contain_text("Stopped by budget", timeout=60_000)
        assert client.budgets.get(budget_id).overshoot_nano_usd < 45 * 1_000_000

        alice.go(budget)
        page.get_by_label("Limit in dollars").fill("5")
        page.get_by_role("button", name="Save changes").click()
        alice.toast("Budget changed.")
        page.get_by_role("button", name="Resume").click()
        alice.is_at(job)
        expect(page.locator("#workload-state")).to_contain_text("Completed", timeout=120_000)
        log = wait_for(lambda: _whole_log(client, job.rpartition("/")[2]), "the final metric")
    assert _expected() in (log or "")
    assert re.search(r"begins at step [1-9]", log or "")

    alice.go("/p/cents/spend")
    cost = page.get_by_role("row", name=re.compile("train.py")).locator("td").last.inner_text()
    alice.go(job)
    expect(page.locator("#workload-state")).to_contain_text(cost)


def _whole_log(client: slipway.Client, job: str) -> str:
    text = b"".join(client.jobs.logs(job, project="cents")).decode()
    return text if "final metric" in text else ""
