"""A budget that is used up under an open notebook: told in JupyterLab, saved, stopped, and back."""

import re
import secrets

import pytest
from playwright.sync_api import Page, expect

from tests.integration.notebooks.test_in_browser import open_notebook
from tests.notebooks import SERVERS, Person, notebook_of
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
_USD = 10**9


@pytest.mark.thorough
def test_a_budget_warns_saves_and_stops_and_the_raise_brings_the_desk_back(
    running: RunningPortal, page: Page, bob: Person
) -> None:
    path = f"spent-{secrets.token_hex(3)}.ipynb"
    server = bob.ready("spent")
    page.goto(f"{bob.portal}/p/vision/notebooks/servers/{server}?open=1")
    page.wait_for_url(re.compile(re.escape(bob.notebooks)))
    page.locator(".jp-LauncherCard").first.wait_for()
    desk = bob.open(server)
    assert desk.call("PUT", f"contents/{path}", json=notebook_of("x = 1")).is_success
    open_notebook(page, desk.base, path)
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.type("never_saved_by_hand = True  # ")

    with running.client("root") as root:
        for earlier in root.get("/budgets").json()["items"]:  # of this test, when it is tried again
            root.delete(f"/budgets/{earlier['id']}").raise_for_status()
        limit = {"person": "bob@example.org", "limit_nano_usd": 1}
        made = root.post("/budgets", json=limit)
        assert made.status_code == 201, made.text
        budget = f"/budgets/{made.json()['id']}"
        try:
            notice = page.get_by_role("alert").filter(has_text="This server stops at")
            expect(notice).to_contain_text("budget")
            stopped = bob.wait_for(server, "stopped", within_s=150)
            assert "budget" in stopped["explanation"]
            wait_for(
                lambda: bob.says_of_saves(path, "never_saved_by_hand"),
                "the cell that nobody saved",
                within_s=60,
            )
            refused = bob.api.post(f"{SERVERS}/{server}/start")
            assert refused.status_code in (402, 409), refused.text
            assert "budget" in refused.json()["detail"]
            raised = root.patch(budget, json={"limit_nano_usd": 5 * _USD})
            assert raised.is_success, raised.text
            bob.start(server)
        finally:
            root.delete(budget).raise_for_status()
    page.goto(f"{bob.portal}/p/vision/notebooks/servers/{server}?open=1")
    page.wait_for_url(re.compile(re.escape(bob.notebooks)))
    cell = page.locator(".jp-Notebook .cm-content").first
    expect(cell).to_contain_text("never_saved_by_hand")
    bob.stop(server)
