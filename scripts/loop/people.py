"""The two people of the demo: invited by the administrator, signed in by the form as anybody is."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.loop.browser import Browser
from scripts.loop.hardware import offer_tier
from scripts.loop.processes import ROOT, Platform
from scripts.loop.steps import DemoError, show
from slipway import Client
from slipway.errors import NotFound, SlipwayError
from slipway.schemas.accounts import Role, Scope

TEAM: Final = "demo"
_TOKEN_NAME: Final = "make demo"  # noqa: S105  (a display name, not a secret)
_ALL_SCOPES: Final = tuple(scope.value for scope in Scope)
_SCOPES: Final = tuple(scope for scope in _ALL_SCOPES if scope != Scope.ADMIN)


@dataclass(frozen=True)
class DemoUser:
    """Somebody who is signed in: in a browser, and with a token for programs."""

    name: str
    email: str
    browser: Browser
    client: Client


class Passwords:
    """The passwords of the demo's people, in a file that nobody else may read.

    They are generated, and this is the only place that keeps them.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, whom: str) -> str | None:
        """Return the password that was kept, None for a person who is new."""
        return self._read().get(whom)

    def keep(self, whom: str, password: str) -> None:
        """Keep a password."""
        text = json.dumps(self._read() | {whom: password}, indent=2)
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(text)

    def _read(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return found


class UserSetup:
    """Lets the people of the demo in, each by the door that everybody takes."""

    def __init__(self, platform: Platform, passwords: Passwords) -> None:
        self._platform = platform
        self._passwords = passwords

    @contextlib.contextmanager
    def let_in(self, name: str, does: str) -> Iterator[DemoUser]:
        """Sign a person in, invited before if need be; yields until the demo is over."""
        email, url = f"{name.lower()}@localhost", self._platform.url
        kept_as = f"{email} at {url}"
        with Browser(url) as browser:
            password = self._passwords.of(kept_as)
            if password is None or not browser.sign_in(email, password):
                password = secrets.token_urlsafe(12)
                browser.join(self._invitation(email), name, password)
                self._passwords.keep(kept_as, password)
            show("sign in", f"{email}, password {password} ({does})")
            with _client(browser, url, _SCOPES) as client:
                yield DemoUser(name, email, browser, client)

    def _invitation(self, email: str) -> str:
        with self._administrator() as client:
            try:
                client.teams.get(TEAM)
            except NotFound:
                client.teams.create("Demo", slug=TEAM)
            offer_tier(client)
            made = client.invitations.create(email, role=Role.MAINTAINER, team=TEAM)
        return made.link

    @contextlib.contextmanager
    def _administrator(self) -> Iterator[Client]:
        """Yield the administrator: by the password that was just printed, if it was just made.

        An administrator who was there before has a password that nobody else knows; whoever runs
        the demo is the operator of this machine, to whom a command gives a token.
        """
        url, known = self._platform.url, self._platform.administrator()
        with contextlib.ExitStack() as stack:
            if known is not None:
                browser = stack.enter_context(Browser(url))
                if not browser.sign_in(*known):
                    raise DemoError("the password of the administrator was not accepted")
                yield stack.enter_context(_client(browser, url, _ALL_SCOPES))
            else:
                yield stack.enter_context(Client(url, token=_operators_token()))


@contextlib.contextmanager
def _client(browser: Browser, url: str, scopes: Sequence[str]) -> Iterator[Client]:
    """Yield a client with a token of its own, which is revoked afterwards."""
    token = browser.make_token(_TOKEN_NAME, scopes)
    with Client(url, token=token) as client:
        (mine,) = (one for one in client.tokens.list() if token.startswith(one.prefix))
        try:
            yield client
        finally:
            with contextlib.suppress(SlipwayError):  # it also expires
                client.tokens.revoke(mine.id)


def _operators_token() -> str:
    made = subprocess.run(
        [sys.executable, "manage.py", "user_token", "--name", _TOKEN_NAME, "--days", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise DemoError(f"no token to invite people with: {made.stderr.strip()}")
    return made.stdout.strip()
