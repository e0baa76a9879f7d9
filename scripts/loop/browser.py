"""A minimal HTTP browser: opens pages, submits their forms and keeps cookies."""

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
_BUTTON_TYPES: Final = frozenset({"submit", "button", "reset", "image"})
Values = dict[str, list[str]]


@dataclass
class Form:
    """A form of a page: its action and its initial values."""

    action: str
    values: Values = field(default_factory=dict)


class Forms(HTMLParser):
    """Parses the POST forms of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select = self._text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a form, or a field of the current form."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form" and attributes.get("method", "").lower() == "post":
            self._form = Form(attributes.get("action", ""))
            self.forms.append(self._form)
        elif self._form is None or "disabled" in attributes:
            return
        elif tag == "select":
            self._select = attributes.get("name", "")
            self._form.values.setdefault(self._select, [])
        elif tag == "option" and self._select:
            self._choose(attributes)
        elif tag == "textarea":
            self._text = attributes.get("name", "")
            self._form.values[self._text] = [""]
        elif tag == "input" and attributes.get("name"):
            self._fill(attributes)

    def _choose(self, attributes: dict[str, str]) -> None:
        assert self._form is not None  # noqa: S101  (the caller checked it)
        chosen = self._form.values[self._select]
        if "selected" in attributes or not chosen:
            chosen[:] = [attributes.get("value", "")]

    def _fill(self, attributes: dict[str, str]) -> None:
        assert self._form is not None  # noqa: S101  (the caller checked it)
        kind, name = attributes.get("type", "text").lower(), attributes["name"]
        if kind in _BUTTON_TYPES:
            return
        values = self._form.values.setdefault(name, [])
        if kind not in ("checkbox", "radio"):
            values.append(attributes.get("value", ""))
        elif "checked" in attributes:
            values.append(attributes.get("value", "on"))

    def handle_data(self, data: str) -> None:
        """Collect the text of a textarea."""
        if self._form is not None and self._text:
            self._form.values[self._text] = [data]

    def handle_endtag(self, tag: str) -> None:
        """Close the current form or field."""
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._text = ""


class Browser:
    """Opens pages of a portal and submits their forms. Use it as a context manager."""

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
        """Open a page. Raises httpx.HTTPError for an error status."""
        return self._http.get(path).raise_for_status()

    def send(self, path: str, **fields: str | Sequence[str]) -> httpx.Response:
        """Fill in and submit the form of a page that has these fields. Returns the next page."""
        page = self.open(path)
        forms = [form for form in Forms(page.text).forms if fields.keys() <= form.values.keys()]
        if not forms:
            raise DemoError(f"{page.url} has no form with {', '.join(fields)}")
        values: Values = {
            name: [value] if isinstance(value, str) else [*value] for name, value in fields.items()
        }
        return self._post(page, forms[0], values)

    def press(self, path: str, action: str) -> httpx.Response:
        """Submit the form of a page whose action is `action`. Returns the next page."""
        page = self.open(path)
        forms = [form for form in Forms(page.text).forms if form.action == action]
        if not forms:
            raise DemoError(f"{page.url} has no button to {action}")
        return self._post(page, forms[0], {})

    def _post(self, page: httpx.Response, form: Form, fields: Values) -> httpx.Response:
        url = page.url.join(form.action)
        values = form.values | fields
        return self._http.post(url, data=values, headers={"Referer": str(page.url)})

    def sign_in(self, email: str, password: str) -> bool:
        """Sign in through the form. Returns whether that succeeded."""
        return self.send(_SIGN_IN, login=email, password=password).url.path != _SIGN_IN

    def join(self, link: str, name: str, password: str) -> None:
        """Accept an invitation by its link and create an account, which is then signed in."""
        self.open(link)
        response = self.send("/account/join", name=name, password1=password)
        if response.is_error or response.url.path == "/account/join":
            raise DemoError(f"the invitation of {name} was not accepted: {response.url}")

    def create_token(self, name: str, scopes: Sequence[str]) -> str:
        """Create an API token on the Settings page, valid for a week, and return it."""
        response = self.send(
            "/settings/tokens/new", name=name, preset="custom", scopes=scopes, expires_in_days="7"
        )
        secret = _SECRET.search(response.text)
        if secret is None:
            raise DemoError(f"no token was created: {response.url} returned {response.status_code}")
        return secret[1]
