"""Browsers against a real portal: signed in by the form, listening to streams."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.personas import PASSWORD
from tests.portals import RunningPortal

_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Visitor:
    """A browser at a running portal, without scripts."""

    def __init__(self, portal: RunningPortal) -> None:
        self.http = httpx.Client(
            base_url=portal.url, headers={"Accept": "text/html"}, timeout=20, follow_redirects=True
        )

    @classmethod
    def signed_in(cls, portal: RunningPortal, name: str) -> "Visitor":
        """A browser in which one of the portal's people is signed in."""
        visitor = cls(portal)
        credentials = {"login": f"{name}@example.org", "password": PASSWORD}
        assert visitor.send("/account/login", **credentials).is_success
        return visitor

    def send(self, address: str, *, seen_on: str = "", **fields: str) -> httpx.Response:
        """Send a form as a page would: with the anti-forgery token of the page it stands on."""
        page = self.http.get(seen_on or address)
        match = _TOKEN.search(page.text)
        assert match is not None, page.text
        data = {"csrfmiddlewaretoken": match.group(1), **fields}
        answer = self.http.post(address, data=data, headers={"Referer": str(page.url)})
        assert answer.status_code < 500, answer.text
        return answer

    @contextmanager
    def listening(
        self, address: str, *, last: str | None = None, timeout_s: float = 10.0
    ) -> Iterator["Ear"]:
        """Open a stream; the block runs once the portal has begun to answer."""
        headers = {"Accept": "text/html, text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        with self.http.stream("GET", address, headers=headers, timeout=timeout_s) as answer:
            yield Ear(answer)


class Ear:
    """Hears one stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id = ""
        self._lines: Any = answer.iter_lines() if answer.is_success else iter(())
        if answer.is_success:
            self._until_id()

    def _until_id(self) -> None:
        for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line[4:]
                return

    def hears(self, event: str, *, within_s: float = 10.0) -> float:
        """Wait for an event; returns the seconds it took."""
        began_s = time.monotonic()
        heard = []
        for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line[4:]
            if line.startswith("event: "):
                heard.append(line[7:])
                if line[7:] == event:
                    took_s = time.monotonic() - began_s
                    assert took_s <= within_s
                    return took_s
        raise AssertionError(f"the stream ended without {event}; heard {heard}")

    def rest(self) -> list[str]:
        """The events that still come until the portal closes the stream."""
        return [line[7:] for line in self._lines if line.startswith("event: ")]
