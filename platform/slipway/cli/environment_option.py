"""Options of commands that run something in an environment."""

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
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="VERSION",
        help="Version of Python, such as 3.12. Default: .python-version, requires-python of "
        "pyproject.toml, or that of the installation.",
    ),
]
