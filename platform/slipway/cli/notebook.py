"""`slipway notebook`: notebooks of a project."""

import typer

from slipway.cli import notebook_servers

app = typer.Typer(no_args_is_help=True, help="Notebooks: start, open, stop.")
notebook_servers.register(app)
