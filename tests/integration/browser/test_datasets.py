"""A dataset from a browser's upload to the job that reads it, against all of Slipway."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

import slipway
from tests.integration.browser.conftest import NARROW, PATIENCE_MS, WIDE, Window, address_of
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser
SCRIPT = """
import os
import slipway

data = slipway.dataset("digits")
table = data.arrow()
print("read", data.reference, table.num_rows, "rows in", os.environ["SLIPWAY_CACHE"], flush=True)
print(sorted(path.name for path in data.path.iterdir()), flush=True)
"""


@pytest.fixture(scope="module")
def lab(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """All of Slipway with a node."""
    return whole_slipway()


@pytest.fixture
def slug(lab: RunningPortal) -> str:
    """A fresh project of Alice's, without data."""
    with lab.client("alice") as api:
        made = api.post("/projects", json={"name": f"Pixels {secrets.token_hex(4)}"})
        return str(made.raise_for_status().json()["slug"])


def test_data_is_uploaded_looked_at_compared_and_read_by_a_job(
    lab: RunningPortal, slug: str, chromium: Browser, tmp_path: Path
) -> None:
    context = chromium.new_context(viewport={"width": WIDE["width"], "height": WIDE["height"]})
    window = Window(context.new_page(), address_of(lab))
    page = window.page
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/{slug}/datasets")
    page.get_by_role("link", name="Create your first dataset").click()
    page.get_by_label("Name").fill("digits")
    page.get_by_role("button", name="Continue to files").click()
    rows = "".join(f"{number},{number % 10}\n" for number in range(500))
    (tmp_path / "digits.csv").write_text(f"pixel,label\n{rows}bad\n")
    _send(window, tmp_path / "digits.csv")
    page.get_by_role("button", name="Check and create version").click()
    window.says("Validation failed")
    window.says("1 bad row; the first is in digits.csv, line 502.")
    (tmp_path / "digits.csv").write_text(f"pixel,label\n{rows}")
    window.go(f"/p/{slug}/datasets/digits")
    page.get_by_role("button", name="New version").click()
    _send(window, tmp_path / "digits.csv")
    page.get_by_role("button", name="Check and create version").click()
    expect(page.get_by_role("heading", name="digits:1")).to_be_visible(timeout=PATIENCE_MS)
    window.says("First rows of digits.csv")
    window.says("First rows of digits.csv")
    page.get_by_role("link", name="Later rows").click()
    window.says("From row 26")
    (tmp_path / "more.bin").write_bytes(os.urandom(17 * 1024**2))
    (tmp_path / "digits.csv").write_text(f"pixel,label\n{rows}1000,1\n")
    window.go(f"/p/{slug}/datasets/digits")
    page.get_by_role("button", name="New version").click()
    _send(window, tmp_path / "digits.csv", tmp_path / "more.bin")
    page.get_by_role("button", name="Check and create version").click()
    expect(page.get_by_role("heading", name="digits:2")).to_be_visible(timeout=PATIENCE_MS)
    window.says("1 added, 0 removed, 1 changed file")
    window.says("500 → 501 rows")
    _photograph(window, "version")
    _train(lab, slug, tmp_path)
    page.reload()
    page.get_by_role("link", name="train.py").first.click()
    expect(page.locator("#workload-places ~ section", has_text="digits:2").first).to_be_visible()
    window.go(f"/p/{slug}/datasets")
    window.says("digits:2")
    _photograph(window, "list")
    assert window.faults == []
    context.close()


def test_files_chosen_before_the_script_has_come_are_sent(
    lab: RunningPortal, slug: str, chromium: Browser, tmp_path: Path
) -> None:
    context = chromium.new_context()
    window = Window(context.new_page(), address_of(lab))
    window.go("/account/login").sign_in("alice").is_at("/")
    name = "early"
    with lab.client("alice") as api:
        api.post(f"/projects/{slug}/datasets", json={"name": name}).raise_for_status()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    window.page.route("**/slipway/data*.js", hold)
    window.page.goto(f"{window.url}/p/{slug}/datasets/{name}")
    with window.page.expect_request("**/slipway/data*.js"):
        window.page.get_by_role("button", name="New version").click(no_wait_after=True)
    (tmp_path / "early.csv").write_text("pixel\n1\n")
    window.page.get_by_label("Add files").set_input_files(tmp_path / "early.csv")
    [script] = held
    script.continue_()
    expect(window.page.locator("#data-files tbody tr")).to_have_count(1, timeout=PATIENCE_MS)
    context.close()


def _send(window: Window, *files: Path) -> None:
    window.page.get_by_label("Add files").set_input_files([*files])
    rows = window.page.locator("#data-files tbody tr")
    status = window.page.locator("#data-state")
    try:
        expect(rows).to_have_count(len(files), timeout=PATIENCE_MS)
    except AssertionError as error:
        error.add_note(f"the page said: {status.text_content()}")
        raise


def _train(lab: RunningPortal, slug: str, tmp_path: Path) -> None:
    """Run a job that reads the dataset, and look at what it says."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    with slipway.Client(lab.url, lab.tokens["alice"]) as client:
        job = slipway.train(
            "train.py", folder=code, datasets=["digits"], project=slug, client=client
        )
        assert job.datasets == ["digits:2"]
        ended = client.jobs.wait(job.workload.id, project=slug, timeout_s=120)
        log = b"".join(client.jobs.logs(job.workload.id, project=slug)).decode()
        assert ended.workload.state == "succeeded", log
        assert "read digits:2 501 rows in" in log
        assert "['digits.csv', 'more.bin']" in log
        deadline = time.monotonic() + 10
        while not (uses := client.datasets.uses("digits", project=slug)):
            assert time.monotonic() < deadline
        assert {use.job for use in uses} == {job.workload.id}
        assert any(use.declared for use in uses)


def _photograph(window: Window, name: str) -> None:
    """Leave pictures of a page, wide and narrow, where they are asked for."""
    folder = os.environ.get("PICTURES")
    if folder:
        for size, view in (("wide", WIDE), ("narrow", NARROW)):
            window.page.set_viewport_size({"width": view["width"], "height": view["height"]})
            window.page.screenshot(path=f"{folder}/datasets-{name}-{size}.png", full_page=True)
        window.page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})
