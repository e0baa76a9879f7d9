"""Take the pictures that the README shows, of what `make demo` has left, with a real Chromium.

    make screenshots

Drives the demo in an installation of its own, which is gone afterwards, and signs in as one of the
two people it has let in.
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
SETTLES_MS = 1500  # until the page has loaded and drawn its data
PATIENCE_MS = 180_000
SIZE: ViewportSize = {"width": 1280, "height": 860}
PAGES = {
    "project": ("/p/demo", "light"),
    "endpoint": ("/p/demo/endpoints/demo-digits", "light"),
    "monitoring": ("/p/demo/endpoints/demo-digits/monitoring", "light"),
    "spend": ("/p/demo/spend", "light"),
    "home-dark": ("/", "dark"),
}


def sign_in(page: Page, said: str) -> str:
    """Sign Ada in with what the demo printed; returns the portal's address."""
    person = re.search(r"sign in: +(ada@localhost), password (\S+)", said)
    place = re.search(r"Look around: (http://\S+)/p/demo", said)
    if person is None or place is None:
        raise SystemExit(f"The demo printed no address or no password:\n{said}")
    page.goto(f"{place[1]}/account/login")
    page.fill("input[name=login]", person[1])
    page.fill("input[name=password]", person[2])
    page.click("form button[type=submit]")
    page.wait_for_url(f"{place[1]}/")
    return place[1]


def open_notebook(page: Page, url: str) -> None:
    """Start the demo's notebook server again and open what it ran, with its outputs."""
    page.goto(f"{url}/p/demo/notebooks")
    page.get_by_role("link", name="neighbours").first.click()
    address = page.url
    page.get_by_role("button", name="Start").first.click()
    page.goto(f"{address}?open=1")
    page.wait_for_url(re.compile(r"http://127\.0\.0\.2:.*/lab"))
    page.goto(f"{page.url.partition('/lab')[0]}/lab/tree/neighbours.ipynb")
    page.locator(".jp-Notebook .jp-OutputArea-output").first.wait_for()


def main() -> None:
    """Drive the demo, and take every picture."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data, demos(Path(data)) as start, sync_playwright() as by:
        demo = start()
        said = demo.wait_for_text("Look around:", within_s=FIRST_WITHIN_S)
        browser = by.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        for theme in ("light", "dark"):
            take_pictures(browser, said, dark=theme == "dark")
        browser.close()
        demo.signal(signal.SIGINT)
        demo.wait(120)
    sys.stdout.write(f"{len(PAGES) + 2} pictures in {TARGET.relative_to(ROOT)}\n")


def take_pictures(browser: Browser, said: str, *, dark: bool) -> None:
    """Take the pictures of one theme."""
    theme = "dark" if dark else "light"
    page = browser.new_context(viewport=SIZE, color_scheme="dark" if dark else "light").new_page()
    page.set_default_timeout(PATIENCE_MS)
    url = sign_in(page, said)
    for name, (path, shown_in) in PAGES.items():
        if shown_in == theme:
            page.goto(url + path)
            page.wait_for_timeout(SETTLES_MS)
            page.screenshot(path=TARGET / f"{name}.png")
    if not dark:
        compared = re.search(r"http://\S+/compare\?run=\S+", said)
        if compared is None:
            raise SystemExit(f"The demo compared nothing:\n{said}")
        page.goto(compared[0])
        page.wait_for_timeout(SETTLES_MS)
        page.screenshot(path=TARGET / "compare.png")
        open_notebook(page, url)
        page.wait_for_timeout(SETTLES_MS)
        page.screenshot(path=TARGET / "notebook.png")


if __name__ == "__main__":
    main()
