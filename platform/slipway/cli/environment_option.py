"""The option of commands that run something in a named environment."""

from typing import Annotated

import typer

EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--environment",
        "-e",
        metavar="ENVIRONMENT",
        help="Environment of the project, such as vision or vision@3; see slipway env.",
    ),
]
