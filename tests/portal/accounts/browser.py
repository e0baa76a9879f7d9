"""A browser without a screen: signs in by the form, keeps its cookies, sends the CSRF token."""

import re
from typing import Any, cast

from django.http import HttpResponse
from django.test import Client

from tests.personas import PASSWORD

_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Browser:
    """Walks the pages as one browser at one address does."""

    def __init__(self, address: str = "198.51.100.1") -> None:
        self.client = Client(enforce_csrf_checks=True, REMOTE_ADDR=address)

    def get(self, path: str, **headers: str) -> HttpResponse:
        """Open a page."""
        answer: Any = self.client.get(path, headers=headers)
        return cast("HttpResponse", answer)

    def send(self, path: str, *, form: str | None = None, **fields: str) -> HttpResponse:
        """Open the page `form` (or `path`), fill in its form and send it to `path`."""
        page = self.get(form or path).content.decode()
        match = _CSRF.search(page)
        assert match, f"{form or path} shows no form"
        answer: Any = self.client.post(path, {"csrfmiddlewaretoken": match[1], **fields})
        return cast("HttpResponse", answer)

    def sign_in(self, email: str, password: str = PASSWORD, **fields: str) -> HttpResponse:
        """Sign in by the form."""
        return self.send("/account/login", login=email, password=password, **fields)

    @property
    def is_signed_in(self) -> bool:
        """Whether the portal still knows this browser."""
        return self.get("/settings/profile").status_code == 200


def plain(answer: HttpResponse) -> tuple[int, dict[str, str], str]:
    """Return what tells one answer from another: no CSRF token, request id or cookie values."""
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("X-Request-Id", "Content-Length", "Expires", "Date")
    }
    headers["cookies"] = " ".join(sorted(answer.cookies))
    text = _CSRF.sub("", answer.content.decode()).replace(answer.headers["X-Request-Id"], "")
    return answer.status_code, headers, text
