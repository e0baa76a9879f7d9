"""The login file: which servers this machine is signed in to, and where requests go by default.

`credentials.json` is in the person's configuration folder, or in SLIPWAY_CONFIG_DIR, readable by
its owner only. SLIPWAY_URL, SLIPWAY_TOKEN and SLIPWAY_PROJECT override it, and what is handed
to `Client` or the command line before those.
"""

import os
import re
import tempfile
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from platformdirs import user_config_path
from pydantic import BaseModel, Field, ValidationError

from slipway.errors import InvalidInput, NotLoggedIn

_TOKEN = re.compile(r"[\x21-\x7e]{1,500}")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ServerLogin(BaseModel):
    """Credentials of this machine for one server."""

    token: str = Field(repr=False)
    email: str = ""
    project: str | None = None


class Logins(BaseModel):
    """The content of the login file: servers by their address, and the current one."""

    current: str | None = None
    servers: dict[str, ServerLogin] = Field(default_factory=dict)


def config_dir() -> Path:
    """Return the folder of the login file, or raise InvalidInput if there can be none."""
    chosen = os.environ.get("SLIPWAY_CONFIG_DIR")
    try:
        return Path(chosen).expanduser() if chosen else user_config_path("slipway", appauthor=False)
    except RuntimeError as error:  # the user has no home folder
        raise InvalidInput(
            f"There is no folder for the login file: {error}",
            code="login_file",
            next_step="Set SLIPWAY_CONFIG_DIR to a folder.",
        ) from None


def credentials_path() -> Path:
    """Return where the login file is or would be."""
    return config_dir() / "credentials.json"


def read_logins() -> Logins:
    """Return the logins of this machine, none when there is no file, or raise InvalidInput."""
    path = credentials_path()
    try:
        return Logins.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Logins()
    except OSError as error:
        raise InvalidInput(
            f"The login file {path} cannot be read: {error.strerror}.",
            code="login_file",
            next_step="Give yourself the right to read it, or set SLIPWAY_CONFIG_DIR.",
        ) from None
    except ValidationError:
        raise InvalidInput(
            f"The login file {path} is damaged.",
            code="login_file",
            next_step="Delete it and run `slipway login` again.",
        ) from None


def write_logins(logins: Logins) -> None:
    """Replace the login file atomically, readable by its owner only, or raise InvalidInput."""
    path = credentials_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp creates the file with mode 0600, before anything is written.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(logins.model_dump_json(indent=2, exclude_none=True) + "\n")
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(
            f"The login file {path} cannot be written: {error.strerror}.",
            code="login_file",
            next_step="Free space or give yourself the right to write there, or set "
            "SLIPWAY_CONFIG_DIR.",
        ) from None


def clean_url(text: str) -> str:
    """Return the normalized URL of a server, or raise InvalidInput."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    plain = parts.username is None and not parts.query and not parts.fragment
    if parts.scheme not in _DEFAULT_PORTS or not host or not plain or not host.isprintable():
        raise InvalidInput(
            f"{text!r} is not the address of a server.",
            code="invalid_url",
            field="url",
            next_step="Write it like http://localhost:8000 or https://slipway.example.org.",
        )
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def clean_token(text: str) -> str:
    """Return `text` without surrounding blanks if it can be a token, or raise InvalidInput."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise InvalidInput(
            "That is not a token: it is empty, too long, or holds blanks or other characters "
            "that no token has.",
            code="invalid_token",
            field="token",
            next_step="Copy the whole token from the page where it is shown once.",
        )
    return token


def chosen_url(url: str | None = None) -> str:
    """Return the server to talk to: `url`, SLIPWAY_URL, or the current login.

    Raises NotLoggedIn when none of them names one.
    """
    given = url or os.environ.get("SLIPWAY_URL") or read_logins().current
    if not given:
        raise NotLoggedIn(
            "No server is known on this machine.",
            next_step="Run `slipway login http://localhost:8000` with the address of your server, "
            "or set SLIPWAY_URL and SLIPWAY_TOKEN.",
        )
    return clean_url(given)


def chosen_token(url: str, token: str | None = None) -> str:
    """Return the token for the server `url`: `token`, SLIPWAY_TOKEN, or that of the login file.

    SLIPWAY_TOKEN belongs to SLIPWAY_URL where both are set, and is not sent to another server.
    Raises NotLoggedIn when there is none.
    """
    from_environment = os.environ.get("SLIPWAY_TOKEN")
    bound_to = os.environ.get("SLIPWAY_URL")
    if bound_to and clean_url(bound_to) != url:
        from_environment = None
    given = token or from_environment
    if given:
        return clean_token(given)
    login = read_logins().servers.get(url)
    if login is None:
        raise NotLoggedIn(
            f"This machine is not signed in to {url}.",
            next_step=f"Run `slipway login {url}`, or set SLIPWAY_TOKEN.",
        )
    return clean_token(login.token)


def default_project(url: str) -> str | None:
    """Return the project commands use when none is named: SLIPWAY_PROJECT or the login's."""
    chosen = os.environ.get("SLIPWAY_PROJECT")
    if chosen:
        return chosen
    login = read_logins().servers.get(url)
    return login.project if login else None
