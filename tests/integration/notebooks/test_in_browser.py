"""The whole way in a real browser: launch, run, save, history, diff, verify, job, warning, stop."""

import re
import secrets
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Error, Page, expect

from tests.notebooks import SERVERS, OpenDesk, Person, notebook_of
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# Time passes: nothing has worked in any server for five minutes.
_REST = """
from datetime import timedelta
from django.db.models import F
from portal.notebooks.models import Server
Server.objects.filter(state="ready").update(active_at=F("active_at") - timedelta(minutes=5))
"""


def launch(page: Page, bob: Person) -> tuple[str, Page]:
    """Launch a server by the form; answers its id, and the tab in which JupyterLab opens."""
    name = f"walk-{secrets.token_hex(3)}"
    page.goto(f"{bob.portal}/p/vision/notebooks/new")
    page.evaluate("localStorage.setItem('slipway-theme', 'dark')")
    page.reload()
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("Idle timeout, in minutes").fill("5")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Launch").click()
    lab = opened.value
    try:
        lab.wait_for_url(re.compile(re.escape(bob.notebooks)))
    except Error:
        raise AssertionError(f"{lab.url}: {lab.locator('main').inner_text()}") from None
    lab.locator(".jp-LauncherCard").first.wait_for()
    expect(page).to_have_url(f"{bob.portal}/p/vision/notebooks")
    servers = bob.api.get(SERVERS, params={"mine": "true"}).json()["items"]
    return next(str(server["id"]) for server in servers if server["name"] == name), lab


def look_around(lab: Page, page_of_server: str) -> None:
    """Check the theme, the way back, the menu and the meter of resources."""
    expect(lab.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    back = lab.get_by_title("Open the page of this server in Slipway")
    expect(back).to_have_attribute("href", page_of_server)
    lab.get_by_role("menuitem", name="File", exact=True).click()
    menu = lab.locator(".lm-Menu")
    expect(menu).to_contain_text("Save All")
    expect(menu).not_to_contain_text("Hub Control Panel")
    expect(menu.get_by_text("Print…")).to_be_visible()
    expect(menu.get_by_text("Log Out")).to_be_hidden()
    lab.keyboard.press("Escape")
    expect(lab.locator("#jp-top-panel")).to_contain_text("Mem:")


def open_notebook(page: Page, base: str, path: str) -> None:
    """Open a notebook in JupyterLab and wait until its kernel is there."""
    page.goto(f"{base}/lab/tree/{quote(path)}")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    # A cell that is run before JupyterLab has a kernel is dropped without a word.
    expect(page.locator("#jp-bottom-panel")).to_contain_text("| Idle")


def verify_and_run(page: Page, address: str) -> None:
    """Verify a notebook in a clean kernel, then run it as a job with another value."""
    page.goto(address)
    page.get_by_role("button", name="Verify").click()
    page.goto(address)
    badge = page.locator("#notebook-state .card-header .slip-tag")
    expect(badge).to_have_text("Reproducible")

    page.get_by_role("link", name="Run as job").click()
    page.get_by_role("textbox", name="Parameters").fill("rate=3")
    page.get_by_role("button", name="Run as job").click()
    page.get_by_role("link", name="Output notebook").click()
    expect(page.get_by_label("Results of cell 3")).to_contain_text("63")


def test_the_whole_way(page: Page, bob: Person) -> None:
    server, lab = launch(page, bob)
    look_around(lab, f"{bob.portal}/p/vision/notebooks/servers/{server}")
    portal, page = page, lab
    path = f"reports-{secrets.token_hex(3)}.ipynb"
    desk = bob.open(server)
    first = notebook_of("rate = 2", "print(21 * rate)")
    first["content"]["cells"][0]["metadata"]["tags"] = ["parameters"]
    assert desk.call("PUT", f"contents/{path}", json=first).is_success

    # Above its files JupyterLab says who sees them.
    sharing = page.get_by_role("status", name="Who sees these files")
    expect(sharing).to_contain_text("Shared: all members of the project")
    page.goto(f"{desk.base}/lab/tree/personal")
    expect(sharing).to_have_text("Only you see these files.")
    expect(page.locator(".jp-DirListing-item").filter(has_text="README.md")).to_be_visible()

    # Run the cells and save, as a person does.
    open_notebook(page, desk.base, path)
    toolbar = page.locator(".jp-NotebookPanel-toolbar")
    expect(toolbar.locator("[data-jp-item-name='save']")).to_be_visible()
    expect(toolbar.locator("[title*='nbdime' i], [aria-label*='nbdime' i]")).to_have_count(0)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    for _ in range(2):
        page.keyboard.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea-output").first).to_contain_text("42")
    page.keyboard.press("Control+s")

    def saved() -> Any:
        notebook = bob.file(path)
        return notebook if notebook and notebook["latest"]["number"] == 2 else None

    file: Any = wait_for(saved, "the version of the save", within_s=60)
    assert file["latest"]["outputs_digest"]

    # History and difference.
    files = f"{bob.portal}/p/vision/notebooks/files"
    page.goto(files)
    page.get_by_role("link", name=path).click()
    expect(page.locator("#history tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Compare versions").click()
    expect(page.get_by_label("Results of the cell").first).to_contain_text("+ 42")

    page.close()
    page = portal
    page.goto(f"{files}/{file['id']}")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open in JupyterLab").click()
    opened.value.wait_for_url(re.compile(f"{re.escape(bob.notebooks)}.*/{path}"))
    expect(opened.value.locator(".jp-OutputArea-output").first).to_contain_text("42")
    opened.value.close()

    verify_and_run(page, f"{files}/{file['id']}")

    # Stopped by the page.
    page.goto(f"{bob.portal}/p/vision/notebooks/servers/{server}")
    page.get_by_role("link", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the server").click()
    expect(page.locator("#notebook-state")).to_contain_text("Stopped by Bob")

    bob.wait_for(server, "stopped")
    # Started again, it is the same desk: the notebook is open without anybody opening it.
    bob.start(server)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open JupyterLab").click()
    again = opened.value
    again.wait_for_url(re.compile(re.escape(bob.notebooks)))
    again.locator(".jp-Notebook .jp-Cell").first.wait_for()
    expect(again.locator(".lm-TabBar-tabLabel", has_text=path).first).to_be_visible()
    bob.stop(server)


def type_unsaved(page: Page, bob: Person, server: str) -> tuple[OpenDesk, str]:
    """Type into a file that nothing saves by itself; answers its place once all is at rest."""
    desk = bob.open(server)
    settings = "settings/@jupyterlab/docmanager-extension:plugin"
    quiet = desk.call("PUT", settings, below="lab/api", json={"raw": '{"autosave": false}'})
    assert quiet.is_success, quiet.text
    path = f"contents/notes-{secrets.token_hex(3)}.txt"
    before = bob.look(server)["active_at"]
    note = {"type": "file", "format": "text", "content": "kept"}
    assert desk.call("PUT", path, json=note).is_success
    page.goto(f"{desk.base}/lab/tree/{path.removeprefix('contents/')}")
    page.locator(".jp-FileEditor .cm-content").click()
    page.keyboard.type("typed and never saved ")
    for seen, what in (
        (lambda it: it["active_at"] != before, "word of the first save"),
        (lambda it: it["why_alive"].startswith("no activity"), "a server at rest"),
    ):
        wait_for(lambda seen=seen: seen(bob.look(server)), what, within_s=90, every_s=0.5)  # type: ignore[misc]
    assert desk.call("GET", path).json()["content"] == "kept"
    return desk, path


@pytest.mark.slow
def test_a_stop_is_told_in_jupyterlab_saves_and_is_taken_back_by_a_click(
    running: RunningPortal, page: Page, bob: Person
) -> None:
    server = bob.ready("drowsy", idle_minutes=5)
    page.goto(f"{bob.portal}/p/vision/notebooks/servers/{server}?open=1")
    page.wait_for_url(re.compile(re.escape(bob.notebooks)))
    page.locator(".jp-LauncherCard").first.wait_for()
    desk, path = type_unsaved(page, bob, server)
    assert running.installation.manage("shell", "-c", _REST).returncode == 0
    notice = page.get_by_role("alert").filter(has_text="This server stops at")
    expect(notice).to_contain_text("No activity for 5 minutes.")
    assert bob.look(server)["stops_at"]
    wait_for(
        lambda: "typed and never saved" in desk.call("GET", path).json()["content"],
        "what was typed, on the disk",
        within_s=60,
        every_s=0.5,
    )
    notice.get_by_role("button", name="Keep it running").click()
    wait_for(lambda: not bob.look(server)["stops_at"], "a warning that is taken back", within_s=30)
    expect(notice).to_have_count(0)
    assert bob.look(server)["why_alive"] == "kept running on request"
    bob.stop(server)
