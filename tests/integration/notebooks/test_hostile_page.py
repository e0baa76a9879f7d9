"""A hostile page in a notebook, in a real browser, with all that its origin may do."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.notebooks import Person

pytestmark = pytest.mark.browser

# Everything below runs as script of the notebooks' origin, in the browser of somebody who is signed
# in to the portal: what a hostile notebook could do at most.
_READ = """async (url) => {
  try {
    const answer = await fetch(url, { credentials: "include" });
    return `read ${answer.status} ${await answer.text()}`;
  } catch (error) { return "refused"; }
}"""
_POST = """async (url) => {
  const form = document.createElement("form");
  form.method = "post"; form.action = url; form.target = "away";
  const frame = document.createElement("iframe");
  frame.name = "away"; document.body.append(frame, form);
  const loaded = new Promise((done) => frame.addEventListener("load", () => done("loaded")));
  form.submit();
  return Promise.race([loaded, new Promise((done) => setTimeout(() => done("nothing"), 5000))]);
}"""
_FRAME = """async (url) => {
  const frame = document.createElement("iframe");
  frame.src = url; document.body.append(frame);
  await new Promise((done) => { frame.onload = done; setTimeout(done, 5000); });
  try { return frame.contentDocument ? frame.contentDocument.body.innerText : "closed"; }
  catch (error) { return "closed"; }
}"""


@pytest.fixture
def lab(page: Page, bob: Person) -> Iterator[Page]:
    """Bob's JupyterLab, opened from the portal's page by a click."""
    server = bob.ready("hostile")
    page.goto(f"{bob.portal}/p/vision/notebooks/servers/{server}")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open JupyterLab").click()
    opened.value.locator(".jp-LauncherCard").first.wait_for()
    yield opened.value
    bob.stop(server)


def _tokens(bob: Person) -> list[dict[str, Any]]:
    # Not when each was last used: these questions are noted there, once a minute.
    tokens = bob.api.get("/tokens").json()["items"]
    return [token | {"last_used_at": None} for token in tokens]


def test_a_hostile_page_can_do_nothing_in_the_portal(lab: Page, bob: Person) -> None:
    assert lab.url.startswith(bob.notebooks), "already signed in, on an origin of its own"
    cookies = str(lab.evaluate("document.cookie"))
    assert "sessionid" not in cookies
    for path in ("/api/v1/whoami", "/p/vision", "/settings/tokens"):
        assert lab.evaluate(_READ, f"{bob.portal}{path}") == "refused"
    before = _tokens(bob)
    lab.evaluate(_POST, f"{bob.portal}/p/vision/archive")
    lab.evaluate(_POST, f"{bob.portal}/settings/tokens/new")
    assert _tokens(bob) == before
    assert bob.api.get("/projects/vision").is_success
    assert lab.evaluate(_FRAME, f"{bob.portal}/p/vision") in ("closed", "")
    # Nor in the Hub: it starts nothing, and lists nobody.
    refused = lab.evaluate(_READ, f"{bob.notebooks}/hub/api/users")
    assert str(refused).startswith("read 403"), refused
