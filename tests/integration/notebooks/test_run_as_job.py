"""A notebook that runs as a job needs nobody who looks on: the browser is closed at once."""

import json
import secrets
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.notebooks.conftest import PATIENCE_MS
from tests.notebooks import PASSWORD, Person, notebook_of
from tests.processes import wait_for

pytestmark = pytest.mark.browser
_FILES = "/projects/vision/notebook-files"


def kept(bob: Person, path: str, *sources: str) -> str:
    """Keep a notebook whose first cell has the parameters; answers its id."""
    content: Any = notebook_of(*sources)["content"]
    content["cells"][0]["metadata"]["tags"] = ["parameters"]
    made = bob.api.post(
        _FILES,
        params={"path": path},
        content=json.dumps(content),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert made.is_success, made.text
    return str(made.json()["id"])


def signed_in(chromium: Browser, bob: Person) -> Page:
    """Open a window of its own, signed in."""
    page = chromium.new_context(viewport={"width": 1280, "height": 860}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{bob.portal}/account/login")
    page.get_by_label("Email").fill("bob@example.org")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{bob.portal}/")
    return page


@pytest.mark.thorough
def test_a_run_as_job_goes_on_without_the_browser(chromium: Browser, bob: Person) -> None:
    # It goes on only when the browser is gone: a file that this test writes tells it so.
    gate = f"gone-{secrets.token_hex(3)}"
    waits = (
        "import os, time, slipway\n"
        f"while not any(one.path == '{gate}.ipynb' for one in "
        "slipway.Client().notebook_files.list(project=os.environ['SLIPWAY_PROJECT'])):\n"
        "    time.sleep(0.5)"
    )
    file = kept(bob, f"long-{secrets.token_hex(3)}.ipynb", "rate = 2", waits, "print(21 * rate)")
    page = signed_in(chromium, bob)
    try:
        page.goto(f"{bob.portal}/p/vision/notebooks/files/{file}")
        page.get_by_role("link", name="Run as job").click()
        page.get_by_role("textbox", name="Parameters").fill("rate=3")
        at_work = f"{bob.portal}/p/vision/notebooks/files/{file}/run"
        with page.expect_response(
            lambda response: response.url == at_work and response.request.method == "POST"
        ):
            page.get_by_role("button", name="Run as job").click(no_wait_after=True)
    finally:
        page.context.close()
    (run,) = bob.api.get(f"{_FILES}/{file}/runs").json()["items"]
    assert run["state"] not in ("succeeded", "failed"), run
    kept(bob, f"{gate}.ipynb", "pass")
    where = f"/projects/vision/notebook-runs/{run['workload']}"

    def ended() -> Any:
        job = bob.api.get(where).json()
        return job if job["state"] in ("succeeded", "failed", "stopped", "lost") else None

    try:
        done: Any = wait_for(ended, "the end of the job", within_s=180, every_s=0.5)
    except AssertionError as error:
        log = bob.api.get(f"/projects/vision/workloads/{run['workload']}/log").text[-2000:]
        raise AssertionError(f"{error}: {bob.api.get(where).json()}\n{log}") from error
    assert done["state"] == "succeeded", done["explanation"]
    assert done["has_output"]
    output = bob.api.get(f"{where}/output").json()
    (printed,) = output["cells"][-1]["outputs"]
    assert "".join(printed["text"]).strip() == "63"
