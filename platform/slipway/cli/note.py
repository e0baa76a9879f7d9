"""`slipway note`: notes about jobs, sweeps, notebook servers and endpoints."""

from enum import StrEnum
from typing import Annotated

import typer

from slipway.cli.project import ProjectOption, markdown_text
from slipway.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Notes about objects: show, write.")


class Noted(StrEnum):
    """Kinds of objects that have notes."""

    JOB = "job"
    SWEEP = "sweep"
    NOTEBOOK = "notebook"
    ENDPOINT = "endpoint"


KindArgument = Annotated[Noted, typer.Argument(metavar="KIND", help="Kind of the object.")]
TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="OBJECT", help="Id of the job, sweep or notebook server, or name of the endpoint."
    ),
]


@command(app, "show")
def show(
    session: Session, kind: KindArgument, target: TargetArgument, project: ProjectOption = None
) -> None:
    """Show the notes about an object."""
    slug = session.project(project)
    note = session.client.notes.get(kind, target, project=slug)
    if session.output.as_json:
        session.output.document(note)
    elif note.version:
        for line in note.text.split("\n"):
            session.output.line(line)
    else:
        session.output.note(
            f"There are no notes about {kind} {target} yet. Write some: "
            f"slipway note write {kind} {target} NOTES.md --project {slug}"
        )


@command(app, "write")
def write(
    session: Session,
    kind: KindArgument,
    target: TargetArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with the notes, in Markdown.")],
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=0,
            help="Version that the file was edited from, 0 for the first. Default: the current "
            "one. If somebody saved another one meanwhile, nothing is saved.",
        ),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Save a file as the notes about an object."""
    slug, notes = session.project(project), session.client.notes
    text = markdown_text(file, field="file")
    edited_from = notes.get(kind, target, project=slug).version if version is None else version
    note = notes.save(kind, target, text, version=edited_from, project=slug)
    if session.output.as_json:
        session.output.document(note)
    else:
        session.output.note(f"Saved version {note.version} of the notes about {kind} {target}.")
