"""The `slipway` command: command groups and error handling."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO, cast

import typer

from slipway.cli import login
from slipway.cli.exits import ExitCode, UsageMistake, exit_code_for
from slipway.cli.lazy import Root
from slipway.cli.output import write_error
from slipway.cli.prompts import PromptDeclined
from slipway.errors import SlipwayError
from slipway.version import __version__

app = typer.Typer(
    name="slipway",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Slipway from the command line. Sign in first: slipway login http://localhost:8000",
)
login.register(app)


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"slipway {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before any command."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code (see docs/cli.md)."""
    as_json = "--json" in arguments
    try:
        result = app(args=list(arguments), prog_name="slipway", standalone_mode=False)
    except SlipwayError as error:
        write_error(error, as_json=as_json)
        return exit_code_for(error)
    except typer.TyperException as error:
        # Without a message it is the help, which a bare group has printed already.
        if error.format_message():
            write_error(_mistake(error), as_json=as_json)
        return ExitCode.USAGE
    except (PromptDeclined, typer.Abort):
        write_error(CommandInterrupted("Nothing was changed."), as_json=as_json)
        return ExitCode.INTERRUPTED
    except OSError as error:
        write_error(_no_output(error), as_json=as_json)
        return ExitCode.UNEXPECTED
    except Exception as error:  # noqa: BLE001  (people get a sentence, not a traceback)
        if not as_json:
            traceback.print_exc()
        write_error(_bug(error), as_json=as_json)
        return ExitCode.UNEXPECTED
    return result if isinstance(result, int) else ExitCode.OK


class CommandInterrupted(SlipwayError):
    """The user interrupted the command or declined."""

    title = "Stopped"
    default_code = "interrupted"


def _mistake(error: typer.TyperException) -> SlipwayError:
    path = getattr(getattr(error, "ctx", None), "command_path", "slipway")
    return UsageMistake(error.format_message(), next_step=f"See the options: {path} --help")


def _no_output(error: OSError) -> SlipwayError:
    return SlipwayError(
        f"The command could not read or write: {error.strerror or error}.",
        code="input_output",
        next_step="Check the output file and its free disk space.",
    )


def _bug(error: Exception) -> SlipwayError:
    return SlipwayError(
        f"This is a bug in the slipway command: {type(error).__name__}.",
        code="unexpected",
        next_step="Report it with your command and the lines above.",
    )


def _open_null_device(mode: str) -> TextIO:
    """Open the null device for the lifetime of the process."""
    return cast("TextIO", Path(os.devnull).open(mode, encoding="utf-8"))


def run() -> None:
    """Run the command line of this process."""
    # A closed stream is None. The command then reads or writes nothing.
    sys.stdin = sys.stdin or _open_null_device("r")
    sys.stdout = sys.stdout or _open_null_device("w")
    sys.stderr = sys.stderr or _open_null_device("w")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
