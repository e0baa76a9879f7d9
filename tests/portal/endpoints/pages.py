"""Browsers of people on the pages of endpoints."""

from typing import Any

from django.test import Client

from portal.accounts.models import User

ALL = "/p/vision/endpoints"
ONE = f"{ALL}/digits"


def browser_of(user: User) -> Client:
    """A browser in which a person is signed in."""
    browser = Client(headers={"Accept": "text/html"})
    browser.force_login(user)
    return browser


def text_of(answer: Any, status: int = 200) -> str:
    """Return a page, which must have that status."""
    assert answer.status_code == status, answer.content.decode()[:3000]
    return str(answer.content.decode())


def send(browser: Client, address: str, **fields: object) -> Any:
    """Send a form, which must be accepted."""
    answer = browser.post(address, fields)
    assert answer.status_code == 302, answer.content.decode()[:3000]
    return answer
