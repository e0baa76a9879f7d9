"""Take the screenshots of the README from the result of `make demo`, with a real Chromium.

    make screenshots

Runs the demo in a temporary installation and signs in as one of its two users.
"""

import re
import signal
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.chromium import EXECUTABLE, FLAGS  # noqa: E402  (the path comes first)
from tests.integration.test_demo import FIRST_WITHIN_S, demos  # noqa: E402

TARGET = ROOT / "docs" / "screenshots"
SETTLE_MS = 1500  # until the page has loaded and drawn its data
TIMEOUT_MS = 180_000
SIZE: ViewportSize = {"width": 1280, "height": 860}
PAGES = {
    "project": ("/p/demo", "light"),
    "endpoint": ("/p/demo/endpoints/demo-digits", "light"),
    "monitoring": ("/p/demo/endpoints/demo-digits/monitoring", "light"),
    "spend": ("/p/demo/spend", "light"),
    "home-dark": ("/", "dark"),
}


def sign_in(page: Page, output: str) -> str:
    """Sign in as Ada with the credentials that the demo printed, and return the portal's URL."""
    account = re.search(r"sign in: +(ada@localhost), password (\S+)", output)
    url = re.search(r"Look around: (http://\S+)/p/demo", output)
    if account is None or url is None:
        raise SystemExit(f"The demo printed no address or no password:\n{output}")
    page.goto(f"{url[1]}/account/login")
    page.fill("input[name=login]", account[1])
    page.fill("input[name=password]", account[2])
    page.click("form button[type=submit]")
    page.wait_for_url(f"{url[1]}/")
    return url[1]


def open_notebook(page: Page, url: str) -> None:
    """Restart the demo's notebook server and open the notebook that it ran, with its outputs."""
    page.goto(f"{url}/p/demo/notebooks")
    page.get_by_role("link", name="neighbours").first.click()
    address = page.url
    page.get_by_role("button", name="Start").first.click()
    page.goto(f"{address}?open=1")
    page.wait_for_url(re.compile(r"http://127\.0\.0\.2:.*/lab"))
    page.goto(f"{page.url.partition('/lab')[0]}/lab/tree/neighbours.ipynb")
    page.locator(".jp-Notebook .jp-OutputArea-output").first.wait_for()


def main() -> None:
    """Run the demo and take every screenshot."""
    TARGET.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        demos(Path(data)) as start,
        sync_playwright() as playwright,
    ):
        demo = start()
        output = demo.wait_for_text("Look around:", within_s=FIRST_WITHIN_S)
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        for theme in ("light", "dark"):
            take_pictures(browser, output, dark=theme == "dark")
        browser.close()
        demo.signal(signal.SIGINT)
        demo.wait(120)
    sys.stdout.write(f"{len(PAGES) + 2} screenshots in {TARGET.relative_to(ROOT)}\n")


def take_pictures(browser: Browser, output: str, *, dark: bool) -> None:
    """Take the screenshots of one theme."""
    theme = "dark" if dark else "light"
    page = browser.new_context(viewport=SIZE, color_scheme="dark" if dark else "light").new_page()
    page.set_default_timeout(TIMEOUT_MS)
    url = sign_in(page, output)
    for name, (path, shown_in) in PAGES.items():
        if shown_in == theme:
            page.goto(url + path)
            page.wait_for_timeout(SETTLE_MS)
            page.screenshot(path=TARGET / f"{name}.png")
    if not dark:
        comparison = re.search(r"http://\S+/compare\?run=\S+", output)
        if comparison is None:
            raise SystemExit(f"The demo printed no address of a comparison:\n{output}")
        page.goto(comparison[0])
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=TARGET / "compare.png")
        open_notebook(page, url)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=TARGET / "notebook.png")


if __name__ == "__main__":
    main()
