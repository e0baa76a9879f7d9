"""`slipway login`, `logout`, `whoami`: sign this machine in to servers."""

import os
import socket
import sys
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.output import Output
from slipway.cli.prompts import PromptDeclined, confirm, read_piped_secret, read_secret
from slipway.cli.session import RETRIES, Session, command
from slipway.client import Client
from slipway.credentials import (
    ServerLogin,
    clean_token,
    clean_url,
    default_project,
    read_logins,
    write_logins,
)
from slipway.errors import SlipwayError, Unauthenticated
from slipway.schemas.accounts import PRESET_SCOPES, Scope, TokenPreset, WhoAmI

DEFAULT_SCOPES = PRESET_SCOPES[TokenPreset.COMMAND_LINE]
STDIN = "-"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

ServerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help="Address of the server, for example http://localhost:8000.",
        show_default=False,
    ),
]


def token_page(url: str, scopes: list[Scope] | None) -> str:
    """Return the URL of the page that creates a token for this machine."""
    name = f"cli-{socket.gethostname()}"[:100]
    join = ",".join(scopes or DEFAULT_SCOPES)
    return f"{url}/settings/tokens/new?{urlencode({'name': name, 'scopes': join})}"


def register(app: typer.Typer) -> None:
    """Add the three commands to the root."""
    command(app, "login")(login)
    command(app, "logout")(logout)
    command(app, "whoami")(whoami)


def login(
    session: Session,
    server: ServerArgument = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="-", help="Read the token from standard input: --token -"),
    ] = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="Request only these scopes. Repeatable.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page that creates tokens.")
    ] = True,
) -> None:
    """Sign this machine in to a server with a token, and make that server the current one."""
    address = clean_url(server) if server else session.url
    secret = clean_token(_obtain_token(address, token, scope, browser, session.output))
    with Client(address, secret, retries=RETRIES) as client:
        me = client.whoami()
    logins = read_logins()
    before = logins.servers.get(address)
    logins.servers[address] = ServerLogin(
        token=secret,
        email=me.user.email,
        project=before.project if before and before.email == me.user.email else None,
    )
    logins.current = address
    write_logins(logins)
    if session.output.as_json:
        session.output.document(_identity(address, me))
    session.output.note(f"Signed in to {address} as {me.user.email}.")
    overriding = [name for name in ("SLIPWAY_URL", "SLIPWAY_TOKEN") if os.environ.get(name)]
    if overriding:
        session.output.note(f"Later commands still use {' and '.join(overriding)}, which is set.")


def logout(
    session: Session,
    server: ServerArgument = None,
    revoke: Annotated[
        bool | None,
        typer.Option(
            "--revoke/--keep",
            help="Also revoke the token on the server. Default: ask.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Remove the stored token of a server from this machine."""
    address = clean_url(server) if server else session.url
    logins = read_logins()
    known = logins.servers.get(address)
    if known is None:
        session.output.note(f"This machine was not signed in to {address}.")
    else:
        revoked = _revoke(address, known, revoke, session.output)
        del logins.servers[address]
        if logins.current == address:
            logins.current = next(iter(logins.servers), None)
        write_logins(logins)
        session.output.note(
            f"Signed out of {address}; the token "
            + ("is revoked." if revoked else "still works until it expires or is revoked.")
        )
    if session.output.as_json:
        session.output.document(
            {"server": address, "signed_out": known is not None, "current": logins.current}
        )


def whoami(session: Session) -> None:
    """Show your account, the server and the scopes of the token."""
    me = session.client.whoami()
    if session.output.as_json:
        session.output.document(_identity(session.url, me))
        return
    if session.output.quiet:
        session.output.line(me.user.email)
        return
    session.output.facts(
        {
            "Server": session.url,
            "E-mail": me.user.email,
            "Name": me.user.name,
            "Administrator": me.is_administrator,
            "Project in use": default_project(session.url),
            "Token": me.token.name if me.token else None,
            "Token prefix": me.token.prefix if me.token else None,
            "Scopes": me.token.scopes if me.token else None,
            "Token expires": me.token.expires_at if me.token else None,
        }
    )


def _identity(server: str, me: WhoAmI) -> dict[str, object]:
    return {
        "server": server,
        "project": default_project(server),
        **me.model_dump(mode="json"),
    }


def _obtain_token(
    server: str, token: str | None, scopes: list[Scope] | None, browser: bool, output: Output
) -> str:
    """Return the token, piped in or pasted. Opens the page that creates one."""
    if token == STDIN:
        return read_piped_secret()
    if token is not None:
        raise UsageMistake(
            "A token on the command line can be read by other people on this machine.",
            field="token",
            next_step="Pipe it in: slipway login --token - < FILE",
        )
    if not sys.stdin.isatty():
        raise UsageMistake(
            "There is no terminal to enter the token.",
            field="token",
            next_step="Pipe it in: slipway login --token - < FILE",
        )
    page = token_page(server, scopes)
    parts = urlsplit(server)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        output.note(
            "Warning: this address is not https, so others on the network can read the token."
        )
    output.note(f"Create a token here and copy it:\n  {page}")
    if browser and has_browser():
        typer.launch(page)
    return read_secret("Paste the token (it stays hidden)")


def has_browser() -> bool:
    """Return whether there is a display. A text browser would take over the terminal."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _revoke(server: str, known: ServerLogin, requested: bool | None, output: Output) -> bool:
    """Revoke the stored token if requested. A failure does not stop the sign-out."""
    if requested is None:
        if output.as_json or not sys.stdin.isatty():
            return False
        try:
            confirm("Also revoke the token on the server?", yes=False, output=output)
        except PromptDeclined:
            return False
    elif not requested:
        return False
    try:
        with Client(server, known.token, retries=RETRIES) as client:
            token = client.whoami().token
            if token is not None:
                client.tokens.revoke(token.id)
            return token is not None
    except Unauthenticated:
        return True
    except SlipwayError as error:
        output.note(f"The token could not be revoked: {error}")
        return False
