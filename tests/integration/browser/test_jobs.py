"""A job from the form to its clone, in a real browser, against a portal with a real node."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.browser.conftest import (
    PATIENCE_MS,
    WIDE,
    Window,
    address_of,
)
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# Prints the moment of each line, so that a page can be told how far behind it is.
SCRIPT = b"""
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--word", default="epoch")
parser.add_argument("--lines", type=int, default=3)
given = parser.parse_args()
print("\\x1b[32mstarted\\x1b[0m", flush=True)
for number in range(given.lines):
    print(given.word, number, "at", round(time.time() * 1000), flush=True)
    time.sleep(0.3)
print("all done", flush=True)
"""
# At most this far behind what a rank printed; the machine of the tests may be busy.
BEHIND_MS = 1000


PROJECT = "/p/churn"


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway with a node, and the project churn of Alice's."""
    running = whole_slipway()
    with running.client("alice") as api:
        api.post("/projects", json={"name": "Churn", "slug": "churn"}).raise_for_status()
    return running


@pytest.fixture
def alice(lab: RunningPortal, chromium: Browser) -> Iterator[Callable[..., Window]]:
    """Open browsers in which Alice is signed in; faults in them fail the test."""
    opened: list[Window] = []
    people: dict[str, object] = {}

    def open_window(name: str = "alice", **options: object) -> Window:
        options.setdefault("viewport", WIDE)
        state = people.get(name)
        context = chromium.new_context(**options, storage_state=state)  # type: ignore[arg-type]
        window = Window(context.new_page(), address_of(lab))
        if state is None:
            window.go("/account/login").sign_in(name)
            window.is_at("/")
            people[name] = context.storage_state()
        opened.append(window)
        return window

    yield open_window
    for window in opened:
        window.page.context.close()
    assert [fault for window in opened for fault in window.faults] == []


def _script(folder: Path) -> Path:
    file = folder / "train.py"
    file.write_bytes(SCRIPT)
    return file


def _submit(window: Window, folder: Path, **params: object) -> str:
    """Fill the form in, submit it; returns the address of the job."""
    window.go(f"{PROJECT}/jobs/new")
    page = window.page
    page.locator("#id_code").set_input_files(_script(folder))
    expect(page.locator("#code-state")).to_contain_text("uploaded", timeout=PATIENCE_MS)
    expect(page.get_by_label("Script", exact=True)).to_have_value("train.py")
    lines = "\n".join(f"{name}={value}" for name, value in params.items())
    page.get_by_label("Parameters").fill(lines)
    page.get_by_role("radio", name=re.compile("CPU small")).check()
    expect(page.locator("#quote")).to_contain_text("an hour")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/wl_"), timeout=PATIENCE_MS)
    return page.url.removeprefix(window.url)


def test_a_job_is_submitted_watched_cancelled_and_cloned(
    alice: Callable[..., Window], lab: RunningPortal, tmp_path: Path
) -> None:
    window = alice()
    page = window.page
    address = _submit(window, tmp_path, word="step", lines=10_000)
    expect(page.locator("#workload-state")).to_contain_text("Running on node", timeout=60_000)
    expect(page.locator("#log-lines")).to_contain_text("step 3 at", timeout=60_000)
    expect(page.locator("#log-lines .ansi-fg-green")).to_have_text("started")

    page.get_by_role("link", name="Cancel").click()
    window.says("Its only rank is asked to stop")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#workload-state")).to_contain_text("Stopped by Alice", timeout=60_000)
    expect(page.locator("#log-state")).to_have_text("Log complete.", timeout=60_000)
    expect(page.get_by_role("link", name="Cancel", exact=True)).to_have_count(0)

    page.get_by_role("link", name="Clone with edits").click()
    expect(page.get_by_label("Parameters")).to_have_value("word=step\nlines=10000")
    page.get_by_label("Parameters").fill("word=again\nlines=2")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("#workload-state")).to_contain_text("succeeded", timeout=60_000)
    expect(page.locator("#log-lines")).to_contain_text("all done", timeout=PATIENCE_MS)
    expect(page.locator("#log-lines")).to_contain_text("again 1 at")
    assert page.url.removeprefix(window.url) != address
    window.says("clone of")


def test_the_log_reaches_the_browser_within_a_second(
    alice: Callable[..., Window], lab: RunningPortal, tmp_path: Path
) -> None:
    window = alice()
    _submit(window, tmp_path, word="tick", lines=100)
    behind = []
    for number in range(5, 25):
        line = window.page.locator(".log-line", has_text=f"tick {number} at")
        line.wait_for(timeout=60_000)
        printed_ms = int(str(line.inner_text()).rpartition(" ")[2])
        behind.append(time.time() * 1000 - printed_ms)
    window.page.get_by_role("link", name="Cancel").click()
    window.page.get_by_role("button", name="Cancel the job").click()
    sys.stdout.write(f"behind in ms: {sorted(round(each) for each in behind)}\n")
    middle_ms = sorted(behind)[len(behind) // 2]
    assert middle_ms <= BEHIND_MS, [round(each) for each in behind]


@pytest.mark.thorough
def test_the_log_is_searched_and_downloaded_whole(
    alice: Callable[..., Window], lab: RunningPortal, tmp_path: Path
) -> None:
    window = alice()
    page = window.page
    _submit(window, tmp_path, word="needle", lines=2)
    expect(page.locator("#log-lines")).to_contain_text("all done", timeout=60_000)
    page.get_by_label("Search the log").fill("needle 1")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#log-found")).to_contain_text("1 line with")
    page.locator("[data-log-at]").click()
    expect(page.locator(".log-line").first).to_contain_text("needle 1 at", timeout=PATIENCE_MS)
    with page.expect_download() as started:
        page.get_by_role("link", name="Download", exact=True).click()
    whole = Path(started.value.path()).read_text()
    assert whole.startswith("\x1b[32mstarted\x1b[0m\n")
    assert whole.endswith("all done\n")


@pytest.mark.thorough
def test_a_whole_folder_is_packed_by_the_browser_without_what_never_belongs_into_a_job(
    alice: Callable[..., Window], tmp_path: Path
) -> None:
    folder = tmp_path / "proj"
    deep = folder / ("a" * 60) / ("b" * 60)
    for inside in (deep, folder / "lib", folder / "__pycache__", folder / ".git"):
        inside.mkdir(parents=True)
        (inside / "model.py").write_text("SIZE = 3\n")
    _script(folder)
    (folder / "train.py").write_text("import lib.model\nprint('size', lib.model.SIZE)\n")
    window = alice().go(f"{PROJECT}/jobs/new")
    page = window.page
    page.locator("#id_folder").set_input_files(folder)
    expect(page.locator("#code-state")).to_contain_text("proj/ uploaded", timeout=PATIENCE_MS)
    expect(page.locator("#id_snapshot option:checked")).to_contain_text("3 files")
    expect(page.get_by_label("Script", exact=True)).to_have_value("train.py")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("#log-lines")).to_contain_text("size 3", timeout=60_000)


def test_the_form_works_without_scripts(
    alice: Callable[..., Window], lab: RunningPortal, tmp_path: Path
) -> None:
    window = alice(java_script_enabled=False)
    window.go(f"{PROJECT}/jobs/new")
    page = window.page
    page.locator("#id_code").set_input_files(_script(tmp_path))
    page.get_by_label("Parameters").fill("lines=1")
    page.get_by_role("button", name="Show price").click()
    window.says("an hour")
    expect(page.get_by_label("Script", exact=True)).to_have_value("train.py")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/wl_"), timeout=PATIENCE_MS)

    def has_ended() -> bool:
        page.reload()
        return "all done" in page.locator("#log-lines").inner_text()

    wait_for(has_ended, "the end of the log", within_s=60)


@pytest.mark.thorough
def test_no_page_about_jobs_or_machines_has_a_serious_barrier(
    alice: Callable[..., Window], lab: RunningPortal, axe: str, tmp_path: Path
) -> None:
    window = alice(bypass_csp=True)
    address = _submit(window, tmp_path, lines=1)
    expect(window.page.locator("#log-lines")).to_contain_text("all done", timeout=60_000)
    job, jobs = address, f"{PROJECT}/jobs"
    faults = []
    search = f"{job.replace('/jobs/', '/workloads/')}/log/find?q=done"
    of_alice = (job, f"{job}/diff", f"{job}/cancel", search, jobs, f"{jobs}/new")
    for path in of_alice:
        window.go(path)
        faults += [*barriers_in_both(window, axe), *overflow(window)]
    root = alice("root", bypass_csp=True)
    with lab.client("root") as api:
        node = api.get("/nodes").json()["items"][0]["name"]
    pages = (
        *("nodes", f"nodes/{node}", f"nodes/{node}/mix"),
        *("tiers", "tiers/new", "tiers/cpu-small", "quotas"),
    )
    for name in pages:
        root.go(f"/settings/{name}")
        faults += [*barriers_in_both(root, axe), *overflow(root)]
    assert faults == []
