"""The one Chromium of a test process, and the event loop that comes with it.

Between two calls, too, Playwright leaves its loop marked as running in the thread of the tests.
What needs a loop of its own there (`asyncio.run`), or refuses to work inside of one (Django's
models), would fail from the first test with a browser on. So the mark is there only while `shown`.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

# Chromium without what only a screen shows does the same pages with a third less work.
EXECUTABLE = next(
    (path for name in ("chromium-headless-shell", "chromium") if (path := shutil.which(name))),
    "/usr/bin/chromium",
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class _Chromium:
    """Playwright and its browser, from their first use on."""

    def __init__(self) -> None:
        self.playwright: Playwright | None = None
        self.browser: Browser | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> Browser:
        """Return the browser; a new one where there is none, or where it has died."""
        if self.browser is None or not self.browser.is_connected():
            self.stop()
            self.playwright = sync_playwright().start()
            self.loop = asyncio._get_running_loop()
            self.browser = self.playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        return self.browser

    def close_windows(self) -> None:
        """Close what a test has left open: its pages would go on asking, and hear events."""
        if self.browser is not None:
            with contextlib.suppress(Error):
                for context in self.browser.contexts:
                    context.close()

    def stop(self) -> None:
        """End the browser and Playwright."""
        playwright, browser = self.playwright, self.browser
        self.playwright = self.browser = None
        if browser is not None:
            with contextlib.suppress(Error):
                browser.close()
        if playwright is not None:
            playwright.stop()
        self.loop = None


_chromium = _Chromium()


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Let Playwright be called inside of this; its loop counts as running only here."""
    asyncio._set_running_loop(_chromium.loop)
    try:
        yield
    finally:
        # What ends with the last test of a process may have hidden it before.
        asyncio._set_running_loop(_chromium.loop)
        _chromium.close_windows()
        asyncio._set_running_loop(None)


def browser() -> Browser:
    """Return the browser, which is started at its first use; call it while `shown`."""
    return _chromium.start()


def end() -> None:
    """End the browser, if there is one."""
    with shown():
        _chromium.stop()
