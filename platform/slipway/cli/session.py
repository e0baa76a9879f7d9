"""State shared by all commands: common options, client, default project."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Concatenate

import typer

from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.output import Output
from slipway.client import Client
from slipway.credentials import chosen_url, clean_url, default_project
from slipway.retries import Retries

# Interactive use: prefer an error with a retry time to a long wait.
RETRIES = Retries(attempts=3, longest_wait_s=10.0)

_COMMON = {
    "url": (
        str | None,
        typer.Option("--url", help="Server. Default: the current login."),
        None,
    ),
    "json": (
        bool,
        typer.Option("--json", help="Print one JSON document. Errors go to standard error."),
        False,
    ),
    "quiet": (
        bool,
        typer.Option("--quiet", "-q", help="Print only ids, one per line."),
        False,
    ),
}


@dataclass
class Session:
    """One run of a command, with its client and output."""

    given_url: str | None
    output: Output

    @cached_property
    def url(self) -> str:
        """The server: --url, SLIPWAY_URL, or the current login."""
        return clean_url(self.given_url) if self.given_url else chosen_url()

    @cached_property
    def client(self) -> Client:
        """The client of that server. Raises NotLoggedIn."""
        return Client(self.url, retries=RETRIES)

    def project(self, given: str | None) -> str:
        """Return the given project or the default. Raises UsageMistake if there is none."""
        slug = given or default_project(self.url)
        if slug is None:
            raise UsageMistake(
                "No project is given, and there is no default.",
                field="project",
                next_step="Give one, or set the default with `slipway project use PROJECT`.",
            )
        return slug

    def close(self) -> None:
        """Close the client's connections, where it was used."""
        if "client" in self.__dict__:
            self.client.close()


Body = Callable[Concatenate[Session, ...], None]


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Body], Callable[..., None]]:
    """Register a function as the command `name` of `app`, with --url, --json and --quiet added.

    Its first parameter receives the `Session`. The others are Typer arguments and options.
    """

    def register(function: Body) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        common = [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, info],
            )
            for option, (kind, info, default) in _COMMON.items()
        ]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            output = Output(as_json=values.pop("json"), quiet=values.pop("quiet"))
            session = Session(values.pop("url"), output)
            try:
                function(session, **values)
                sys.stdout.flush()
            except BrokenPipeError:
                _detach_stdout()
                raise typer.Exit(ExitCode.PIPE_CLOSED) from None
            finally:
                session.close()

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + common
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, **settings)(run)
        return run

    return register


def _detach_stdout() -> None:
    """Redirect standard output to the null device, so the interpreter's last flush succeeds."""
    os.dup2(os.open(Path(os.devnull), os.O_WRONLY), sys.stdout.fileno())
