"""`slipway notebook`: notebooks of a project."""

import typer

from slipway.cli import notebook_files

app = typer.Typer(no_args_is_help=True, help="Notebooks: history, verification, runs as jobs.")
notebook_files.register(app)
