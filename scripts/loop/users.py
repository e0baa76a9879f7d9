"""The two users of the demo: invited by an administrator, signed in through the form."""

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
from scripts.loop.hardware import create_replica_tier
from scripts.loop.pools import create_pool
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
    """A signed-in user, with a browser and an API client."""

    name: str
    email: str
    browser: Browser
    client: Client


class Passwords:
    """The generated passwords of the demo's users, in a file that only this user may read.

    They are stored nowhere else.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, email: str) -> str | None:
        """Return the stored password, or None for a new user."""
        return self._read().get(email)

    def store(self, email: str, password: str) -> None:
        """Store a password."""
        text = json.dumps(self._read() | {email: password}, indent=2)
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    def _read(self) -> dict[str, str]:
        try:
            passwords: dict[str, str] = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return passwords


class UserSetup:
    """Creates the users of the demo by invitation, and signs them in."""

    def __init__(self, platform: Platform, passwords: Passwords) -> None:
        self._platform = platform
        self._passwords = passwords

    @contextlib.contextmanager
    def sign_in(self, name: str, role: str) -> Iterator[DemoUser]:
        """Sign a user in, with an invitation if the account is new. Yields the user."""
        email, url = f"{name.lower()}@localhost", self._platform.url
        account = f"{email} at {url}"
        with Browser(url) as browser:
            password = self._passwords.get(account)
            if password is None or not browser.sign_in(email, password):
                password = secrets.token_urlsafe(12)
                browser.join(self._invitation(email), name, password)
                self._passwords.store(account, password)
            show("sign in", f"{email}, password {password} ({role})")
            with _client(browser, url, _SCOPES) as client:
                yield DemoUser(name, email, browser, client)

    def create_pool(self, engine: str) -> None:
        """Create the pool of the demo, as an administrator."""
        with self._administrator() as client:
            create_pool(client, engine)

    def _invitation(self, email: str) -> str:
        with self._administrator() as client:
            try:
                client.teams.get(TEAM)
            except NotFound:
                client.teams.create("Demo", slug=TEAM)
            create_replica_tier(client)
            invitation = client.invitations.create(email, role=Role.MAINTAINER, team=TEAM)
        return invitation.link

    @contextlib.contextmanager
    def _administrator(self) -> Iterator[Client]:
        """Yield a client of an administrator.

        Signs in with the password if it is known: it was passed in, or this start of the platform
        has just created the first administrator. Otherwise `manage.py user_token` creates a token.
        """
        url, credentials = self._platform.url, self._platform.administrator()
        with contextlib.ExitStack() as stack:
            if credentials is not None:
                browser = stack.enter_context(Browser(url))
                if not browser.sign_in(*credentials):
                    raise DemoError("the password of the administrator was not accepted")
                yield stack.enter_context(_client(browser, url, _ALL_SCOPES))
            else:
                yield stack.enter_context(Client(url, token=_operator_token()))


@contextlib.contextmanager
def _client(browser: Browser, url: str, scopes: Sequence[str]) -> Iterator[Client]:
    """Yield a client with its own token, which is revoked afterwards."""
    token = browser.create_token(_TOKEN_NAME, scopes)
    with Client(url, token=token) as client:
        (entry,) = (each for each in client.tokens.list() if token.startswith(each.prefix))
        try:
            yield client
        finally:
            with contextlib.suppress(SlipwayError):  # it also expires
                client.tokens.revoke(entry.id)


def _operator_token() -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", "user_token", "--name", _TOKEN_NAME, "--days", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DemoError(f"no administrator token to invite users: {done.stderr.strip()}")
    return done.stdout.strip()
