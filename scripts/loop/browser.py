"""A person with a browser, without the browser: pages, their forms, cookies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import TracebackType
from typing import Final, Self

import httpx

from scripts.loop.steps import DemoError

_SIGN_IN: Final = "/account/login"
_SECRET = re.compile(r'id="token-secret">([^<]+)<')
# Buttons have no value to fill in.
_PRESSED: Final = frozenset({"submit", "button", "reset", "image"})
Values = dict[str, list[str]]


@dataclass
class Form:
    """A form of a page: where it goes, and what it says before anybody types."""

    action: str
    values: Values = field(default_factory=dict)


class Forms(HTMLParser):
    """Reads the forms that a page sends by POST."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._inside: Form | None = None
        self._select = self._text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a form, or a field of the one that is open."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("method", "").lower() == "post":
            self._inside = Form(given.get("action", ""))
            self.found.append(self._inside)
        elif self._inside is None or "disabled" in given:
            return
        elif tag == "select":
            self._select = given.get("name", "")
            self._inside.values.setdefault(self._select, [])
        elif tag == "option" and self._select:
            self._choose(given)
        elif tag == "textarea":
            self._text = given.get("name", "")
            self._inside.values[self._text] = [""]
        elif tag == "input" and given.get("name"):
            self._fill(given)

    def _choose(self, given: dict[str, str]) -> None:
        assert self._inside is not None  # noqa: S101  (the caller checked it)
        chosen = self._inside.values[self._select]
        if "selected" in given or not chosen:
            chosen[:] = [given.get("value", "")]

    def _fill(self, given: dict[str, str]) -> None:
        assert self._inside is not None  # noqa: S101  (the caller checked it)
        kind, name = given.get("type", "text").lower(), given["name"]
        if kind in _PRESSED:
            return
        values = self._inside.values.setdefault(name, [])
        if kind not in ("checkbox", "radio"):
            values.append(given.get("value", ""))
        elif "checked" in given:
            values.append(given.get("value", "on"))

    def handle_data(self, data: str) -> None:
        """Note what stands in a field of several lines."""
        if self._inside is not None and self._text:
            self._inside.values[self._text] = [data]

    def handle_endtag(self, tag: str) -> None:
        """Note that a form, or a field of it, has ended."""
        if tag == "form":
            self._inside = None
        elif tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._text = ""


class Browser:
    """Opens pages of a portal, fills in their forms and sends them. Use it as a context manager."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, follow_redirects=True, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def open(self, path: str) -> httpx.Response:
        """Open a page; raises httpx.HTTPError when it is not there."""
        return self._http.get(path).raise_for_status()

    def send(self, path: str, **typed: str | Sequence[str]) -> httpx.Response:
        """Type into the form of a page that has these fields, send it; returns what comes then."""
        page = self.open(path)
        forms = [one for one in Forms(page.text).found if typed.keys() <= one.values.keys()]
        if not forms:
            raise DemoError(f"{page.url} has no form with {', '.join(typed)}")
        values: Values = {
            name: [value] if isinstance(value, str) else [*value] for name, value in typed.items()
        }
        return self._post(page, forms[0], values)

    def press(self, path: str, action: str) -> httpx.Response:
        """Press the button on a page that leads to `action`; returns what comes then."""
        page = self.open(path)
        forms = [one for one in Forms(page.text).found if one.action == action]
        if not forms:
            raise DemoError(f"{page.url} has no button to {action}")
        return self._post(page, forms[0], {})

    def _post(self, page: httpx.Response, form: Form, typed: Values) -> httpx.Response:
        where = page.url.join(form.action)
        sent = form.values | typed
        return self._http.post(where, data=sent, headers={"Referer": str(page.url)})

    def sign_in(self, email: str, password: str) -> bool:
        """Sign in by the form; tells whether that was let in."""
        return self.send(_SIGN_IN, login=email, password=password).url.path != _SIGN_IN

    def join(self, link: str, name: str, password: str) -> None:
        """Follow an invitation's link and make an account, which is signed in then."""
        self.open(link)
        answer = self.send("/account/join", name=name, password1=password)
        if answer.is_error or answer.url.path == "/account/join":
            raise DemoError(f"the invitation of {name} was not accepted: {answer.url}")

    def make_token(self, name: str, scopes: Sequence[str]) -> str:
        """Make an API token that lasts a week, under Settings; returns it."""
        answer = self.send("/settings/tokens/new", name=name, scopes=scopes, expires_in_days="7")
        made = _SECRET.search(answer.text)
        if made is None:
            raise DemoError(f"no token was made: {answer.url} answered {answer.status_code}")
        return made[1]
