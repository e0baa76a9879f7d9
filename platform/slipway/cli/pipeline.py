"""`slipway pipeline`: run pipelines, and see what they do."""

from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.session import Session, command
from slipway.cli.train import CodeOption
from slipway.pipeline_files import read_pipeline
from slipway.pipeline_graphs import FORMATS, draw

app = typer.Typer(
    no_args_is_help=True,
    help="Pipelines: steps with dependencies.",
)
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="FILE", help="YAML or Python file, or FILE.py::NAME of several."),
]


@command(app, "graph")
def graph(
    session: Session,
    source: SourceArgument,
    form: Annotated[
        str, typer.Option("--format", metavar=f"[{'|'.join(FORMATS)}]", help="Form of the graph.")
    ] = "text",
    code: CodeOption = ".",
) -> None:
    """Check a pipeline and show its steps in the order in which they can run."""
    if form not in FORMATS:
        raise UsageMistake(
            f"{form} is no format of graphs.",
            field="format",
            next_step=f"Use {', '.join(FORMATS)}.",
        )
    pipeline = read_pipeline(source, folder=code)
    if session.output.as_json:
        session.output.document(pipeline)
    else:
        for line in draw(pipeline, form).splitlines():
            session.output.line(line)
