"""Confirmation prompts and reading of secrets."""

import sys

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.output import Output
from slipway.sanitize import visible

MAX_SECRET_CHARACTERS = 1_000_000


class PromptDeclined(Exception):
    """The user declined. Nothing was changed."""


def confirm(question: str, *, yes: bool, output: Output) -> None:
    """Ask before something is destroyed, unless `yes`.

    Raises PromptDeclined on "no", and UsageMistake without a terminal.
    """
    if yes:
        return
    if output.as_json or not sys.stdin.isatty():
        raise UsageMistake(
            f"This needs confirmation: {question}",
            next_step="Add --yes to the command.",
        )
    if not typer.confirm(visible(question), err=True):
        raise PromptDeclined


def read_secret(prompt: str) -> str:
    """Return a secret typed without echo, or all of standard input where it is not a terminal.

    One line break at the end of standard input is taken off.
    """
    if sys.stdin.isatty():
        return str(typer.prompt(visible(prompt), hide_input=True, err=True))
    return read_piped_secret()


def read_piped_secret() -> str:
    """Return standard input without one trailing line break."""
    text = sys.stdin.read(MAX_SECRET_CHARACTERS)
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise UsageMistake(
            "Standard input is empty.",
            next_step="Pipe the value in, or run the command on a terminal to be asked for it.",
        )
    return text
