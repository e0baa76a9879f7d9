"""`slipway notebook`: notebooks of a project."""

import typer

from slipway.cli import notebook_files, notebook_servers

app = typer.Typer(
    no_args_is_help=True, help="Notebooks: servers, versions, verification, runs as jobs."
)
notebook_servers.register(app)
notebook_files.register(app)
