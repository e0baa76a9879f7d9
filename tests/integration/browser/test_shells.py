"""A terminal on the page of a job, in a real browser, before the agent and relay of a real node."""

import re
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.conftest import LOOKS, WIDE, Open, Window, address_of
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.jobs import Jobs
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for

pytestmark = pytest.mark.browser

_WAITS = """
import pathlib, time
while not pathlib.Path("go-on").exists():
    time.sleep(0.05)
raise ValueError("loss is NaN")
"""
_SLOW_MS = 60_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway with a node and the relay, and the project churn of Alice's, with Bob in it."""
    folder = tmp_path_factory.mktemp("shells")
    with running_slipway(folder, SLIPWAY_EMBEDDED_RELAY="true") as running:
        with running.client("alice") as api:
            api.post("/projects", json={"name": "Churn", "slug": "churn"}).raise_for_status()
        yield running


@pytest.fixture
def jobs(lab: RunningPortal) -> Iterator[Jobs]:
    with lab.client("alice") as api:
        yield Jobs(api, project="churn")


@pytest.fixture
def open_window(lab: RunningPortal, chromium: Browser) -> Iterator[Open]:
    """Open browsers in which Alice is signed in; faults in them fail the test, refused styles too.

    axe-core alone needs one without the Content Security Policy.
    """
    opened: list[Window] = []

    def get(*, bypass_csp: bool = False) -> Window:
        permissions = ["clipboard-read", "clipboard-write"]
        context = chromium.new_context(
            viewport=WIDE, permissions=permissions, bypass_csp=bypass_csp
        )
        window = Window(context.new_page(), address_of(lab))
        window.go("/account/login").sign_in("alice")
        window.is_at("/")
        opened.append(window)
        return window

    yield get
    for window in opened:
        window.page.context.close()
    assert [fault for window in opened for fault in window.faults] == []


def _shows(page: Page, pattern: str) -> None:
    expect(page.locator(".xterm-rows")).to_contain_text(re.compile(pattern), timeout=_SLOW_MS)


def _is(page: Page, words: str) -> None:
    expect(page.locator("#shell-state")).to_contain_text(words, timeout=_SLOW_MS)


def _running(jobs: Jobs, **changes: Any) -> str:
    job = jobs.submit(_WAITS, name=f"debug-{secrets.token_hex(3)}", keep=[], **changes)
    jobs.wait_for(job, "running", within_s=180)
    return job


def _verbs(jobs: Jobs, job: str) -> list[str]:
    events = jobs.api.get("/audit", params={"project": "churn", "limit": 50}).json()["items"]
    return [f"{it['verb']} {(it['after'] or {}).get('reason', '')}".strip() for it in events]


def _color(page: Page, text: str) -> str:
    spans = page.locator(".xterm-rows span", has_text=text)
    color: str = spans.last.evaluate("(span) => getComputedStyle(span).color")
    return color


def test_a_terminal_on_the_page(open_window: Open, jobs: Jobs) -> None:
    window = open_window()
    page = window.page
    job = _running(jobs)
    window.go(f"/p/churn/jobs/{job}")
    page.get_by_role("link", name="Open a shell").click()
    _is(page, "Connected.")
    _shows(page, r"[$#]")
    page.keyboard.type("echo me=$SLIPWAY_WORKLOAD $((6*7)) 'Grüße 🚢'\n")
    _shows(page, f"me={job} 42 Grüße")
    page.keyboard.type("sleep 1000\n")
    _shows(page, "sleep 1000")
    page.keyboard.press("Control+c")
    _shows(page, r"\^C")
    page.keyboard.type("echo code=$?\n")
    _shows(page, "code=130")

    # Colours of the theme, and any other.
    page.keyboard.type(
        "clear; printf '\\e[31mcrim''son\\e[0m \\e[38;2;1;90;2mspe''cial\\e[0m\\n'\n"
    )
    _shows(page, "crimson special")
    assert _color(page, "crimson") == "rgb(179, 38, 30)"
    assert _color(page, "special") == "rgb(1, 90, 2)"

    page.evaluate("navigator.clipboard.writeText(\"echo pas''ted\")")
    page.keyboard.press("Control+Shift+V")
    page.keyboard.press("Enter")
    _shows(page, "pasted")

    # The window of the terminal follows that of the browser.
    page.set_viewport_size(LOOKS[1][1])
    width = "$(stty size | cut -d' ' -f2)"
    page.keyboard.type(f"clear; while [ {width} -gt 60 ]; do sleep 0.1; done; echo nar''row\n")
    _shows(page, "narrow")
    page.set_viewport_size(WIDE)
    page.keyboard.type(f"clear; while [ {width} -lt 90 ]; do sleep 0.1; done; echo wi''de\n")
    _shows(page, "wide")
    page.keyboard.type("clear; ls --color=always /; python -c 'print(1+1)'\n")
    _shows(page, "usr")

    # What screen readers get.
    page.get_by_label("Read the output to screen readers").check()
    expect(page.locator(".xterm-accessibility-tree")).to_contain_text("usr")
    page.get_by_label("Read the output to screen readers").uncheck()
    page.locator(".xterm-helper-textarea").focus()

    # By keyboard alone, out of the terminal.
    page.keyboard.press("Control+Shift+ArrowUp")
    expect(page.get_by_role("button", name="Close the shell")).to_be_focused()

    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("exit 7\n")
    _is(page, "The shell has ended with status 7.")
    expect(page.get_by_role("button", name="Open another shell")).to_be_focused()
    page.keyboard.press("Enter")
    _is(page, "Connected.")
    # The shell ends with the page.
    window.go(f"/p/churn/jobs/{job}")
    wait_for(lambda: "workload.close_shell closed" in _verbs(jobs, job), "the end of the shell")
    assert _verbs(jobs, job).count("workload.open_shell") == 2
    jobs.api.post(f"/projects/churn/jobs/{job}/cancel").raise_for_status()


def test_a_terminal_survives_a_lost_network(open_window: Open, jobs: Jobs) -> None:
    window = open_window()
    page = window.page
    job = _running(jobs)
    window.go(f"/p/churn/jobs/{job}/shell")
    _is(page, "Connected.")
    page.keyboard.type("echo be''fore\n")
    _shows(page, "before")
    page.context.set_offline(True)
    _is(page, "The connection is lost. Connecting again…")
    page.keyboard.type("echo mean''while\n")
    page.context.set_offline(False)
    _is(page, "Connected.")
    _shows(page, "meanwhile")
    expect(page.locator(".xterm-rows")).to_contain_text("before")
    jobs.api.post(f"/projects/churn/jobs/{job}/cancel").raise_for_status()
    _is(page, "The task has ended, and the shell with it.")
    jobs.wait_for(job, "stopped", within_s=60)
    page.reload()
    window.says("No shell can be opened")
    window.says("and its rank 0 does not run")


def test_a_failed_job_that_is_kept_is_looked_into_and_ended(open_window: Open, jobs: Jobs) -> None:
    window = open_window()
    page = window.page
    job = _running(jobs, keep_failed_minutes=15)
    window.go(f"/p/churn/jobs/{job}/shell")
    _is(page, "Connected.")
    page.keyboard.type("touch go-on\n")
    wait_for(lambda: jobs.look(job)["workload"]["kept_until"], "a kept job", within_s=60)
    # The shell that was open stays.
    page.keyboard.type("echo still he''re\n")
    _shows(page, "still here")
    window.go(f"/p/churn/jobs/{job}")
    expect(page.locator("#workload-state")).to_contain_text("failed, kept")
    expect(page.locator("#workload-state")).to_contain_text("Failed: Rank 0 exited with status 1")
    expect(page.locator("#workload-state")).to_contain_text("Kept until")
    page.get_by_role("link", name="Open a shell").click()
    _is(page, "Connected.")
    window.go(f"/p/churn/jobs/{job}")
    page.get_by_role("link", name="End now").click()
    window.says("Its processes, the shells in it and its files end now")
    page.get_by_role("button", name="End now").click()
    expect(page.locator("#workload-state")).to_contain_text("loss is NaN", timeout=_SLOW_MS)
    jobs.wait_for(job, "failed", within_s=60)
    expect(page.get_by_role("link", name="End now")).to_have_count(0, timeout=_SLOW_MS)
    assert "workload.end_kept" in _verbs(jobs, job)


def test_the_terminal_has_no_barrier_in_any_look(open_window: Open, jobs: Jobs, axe: str) -> None:
    window = open_window(bypass_csp=True)
    page = window.page
    job = _running(jobs, procs=2, keep_failed_minutes=15)
    window.go(f"/p/churn/jobs/{job}/shell?rank=1")
    _is(page, "Connected.")
    page.keyboard.type("clear; ls --color=always /; echo rank=$RANK\n")
    _shows(page, "rank=1")
    assert overflow(window) == []
    assert barriers_in_both(window, axe) == []
    page.keyboard.type("touch go-on\n")
    wait_for(lambda: jobs.look(job)["workload"]["kept_until"], "a kept job", within_s=60)
    window.go(f"/p/churn/jobs/{job}")
    expect(page.locator("#workload-state")).to_contain_text("Kept until")
    assert overflow(window) == []
    assert barriers_in_both(window, axe) == []
    jobs.api.post(f"/projects/churn/jobs/{job}/cancel").raise_for_status()
