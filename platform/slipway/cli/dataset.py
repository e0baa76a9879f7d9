"""`slipway dataset`: push, inspect and pull versions of data."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import progress_bar
from slipway.datasets import dataset as one_dataset
from slipway.schemas.base import PageOf
from slipway.schemas.datasets import ColumnShift, DatasetVersionOut, DataTableOut, UseOut
from slipway.schemas.percent import percent
from slipway.schemas.statistics import ColumnStatistics
from slipway.snapshots.limits import size_text

_MOST_COLUMNS = 50
app = typer.Typer(no_args_is_help=True, help="Datasets: push, pull, list, compare.")

DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset.")]
ReferenceArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET[:VERSION]", help="Name, with :VERSION unless you mean the latest."
    ),
]
TableOption = Annotated[str | None, typer.Option("--table", help="Table. Default: the first.")]


def _parts(reference: str) -> tuple[str, str]:
    name, _, version = reference.partition(":")
    if not name:
        raise UsageMistake(
            "The name of a dataset is missing.", next_step="Name one, for example digits:3."
        )
    return name, version or "latest"


def _show(session: Session, version: DatasetVersionOut) -> None:
    if session.output.as_json:
        session.output.document(version)
    elif session.output.quiet:
        session.output.line(version.reference or version.id)
    else:
        session.output.facts(
            {
                "Version": version.reference or version.id,
                "State": version.state,
                "Why": version.reason or None,
                "Note": version.note or None,
                "Files": version.files,
                "Size": size_text(version.size_bytes),
                "Rows": version.rows,
                "Bad rows": version.bad_rows or None,
                "Tables": _omitted_tables_note(version) or None,
                "Digest": version.digest,
                "By": version.created_by.email,
                "Created": version.created_at,
            }
        )


def _omitted_tables_note(version: DatasetVersionOut) -> str:
    """Return a note about tables beyond the limit, "" where there are none."""
    count = version.tables_left_out
    return f"{count:,} more exceed the limit of tables and are not analyzed." if count else ""


@command(app, "list")
def list_datasets(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the datasets of a project."""
    pages = session.client.datasets.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Latest"),
            ListColumn("Versions"),
            ListColumn("Size"),
            ListColumn("Description", fit=CellOverflow.WRAPPED, dispensable=2),
            ListColumn("Created", dispensable=1),
        ],
        row=lambda d: (
            d.name,
            d.latest,
            d.versions,
            size_text(d.size_bytes),
            d.description,
            d.created_at,
        ),
        key=lambda d: d.name,
        nothing="There is no dataset yet. Create one: slipway dataset push digits digits.csv",
    )


@command(app, "push")
def push(
    session: Session,
    dataset: DatasetArgument,
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Files and folders of the version.")
    ],
    project: ProjectOption = None,
    note: Annotated[str, typer.Option("--note", "-m", help="Description of the changes.")] = "",
    allow_bad_rows: Annotated[
        bool, typer.Option("--allow-bad-rows", help="Skip rows that cannot be read.")
    ] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="Declare a type, such as zip=string."),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option("--missing", metavar="WORD", help="A word that means a missing value."),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="The encoding of text files, such as latin-1.")
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option("--separator", help="The separator of CSV files: , ; | or tab."),
    ] = None,
    sheet: Annotated[
        str | None, typer.Option("--sheet", help="The sheet to read of Excel workbooks.")
    ] = None,
    plain_files: Annotated[
        list[str] | None,
        typer.Option(
            "--plain-file",
            metavar="PATTERN",
            help="Files to store as they are, not as tables, such as 'docs/*' or '*.xlsx'.",
        ),
    ] = None,
) -> None:
    """Upload files as a new version of a dataset. Repeat it to resume an interrupted push."""
    slug = session.project(project)
    before = _latest_version(session, dataset, slug)
    with progress_bar(session, "Uploading data", total_bytes=None) as bar:
        version = session.client.datasets.push(
            dataset,
            *sources,
            project=slug,
            note=note,
            allow_bad_rows=allow_bad_rows,
            types=_declared(types or []),
            missing=missing,
            encoding=encoding,
            separator="\t" if separator == "tab" else separator,
            sheet=sheet,
            plain_files=plain_files,
            progress=lambda _files, sent_bytes: bar.show(sent_bytes),
        )
    if before is not None and version.number is not None and version.number <= before:
        session.output.note(f"Nothing has changed since {version.reference}.")
    _show(session, version)


def _declared(types: list[str]) -> dict[str, str]:
    declared = {}
    for declaration in types:
        column, equals, name = declaration.rpartition("=")
        if not column or not equals:
            raise UsageMistake(
                f"{declaration} is not a type declaration.", next_step="Write --type COLUMN=TYPE."
            )
        declared[column] = name
    return declared


def _latest_version(session: Session, dataset: str, project: str) -> int | None:
    pages = session.client.datasets.list(project=project, search=dataset)
    return next((item.latest for item in pages if item.name == dataset), None)


@command(app, "pull")
def pull(
    session: Session,
    dataset: ReferenceArgument,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Folder to copy the files to.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Download and verify a version. Without --to, print its folder in the cache."""
    _parts(dataset)
    slug = session.project(project)
    value = one_dataset(dataset, project=slug, client=session.client)
    path = value.path
    if to is not None:
        try:
            shutil.copytree(path, to, copy_function=shutil.copyfile, dirs_exist_ok=True)
        except OSError as error:
            raise UsageMistake(
                f"The files cannot be written to {to}: {error}.", next_step="Choose another folder."
            ) from None
        path = to
    if session.output.as_json:
        session.output.document({"version": value.reference, "path": str(path)})
    else:
        session.output.line(str(path))


@command(app, "show")
def show(session: Session, dataset: ReferenceArgument, project: ProjectOption = None) -> None:
    """Show a version."""
    name, version = _parts(dataset)
    slug = session.project(project)
    _show(session, session.client.datasets.version(name, version, project=slug))


@command(app, "versions")
def versions(
    session: Session,
    dataset: DatasetArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the versions of a dataset."""
    pages = session.client.datasets.versions(dataset, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Version", style="bold"),
            ListColumn("Files"),
            ListColumn("Size"),
            ListColumn("Rows"),
            ListColumn("Note", fit=CellOverflow.WRAPPED, dispensable=2),
            ListColumn("By", dispensable=3),
            ListColumn("Created", dispensable=1),
        ],
        row=lambda v: (
            v.reference,
            v.files,
            size_text(v.size_bytes),
            v.rows,
            v.note,
            v.created_by.email,
            v.created_at,
        ),
        key=lambda v: v.reference or v.id,
        nothing="It has no version yet: slipway dataset push DATASET FILES",
    )


@command(app, "files")
def files(
    session: Session,
    dataset: ReferenceArgument,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only paths that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the files of a version."""
    name, version = _parts(dataset)
    pages = session.client.datasets.files(
        name, version, project=session.project(project), search=search
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Path", style="bold"),
            ListColumn("Size"),
            ListColumn("Digest", dispensable=1),
        ],
        row=lambda f: (f.path, size_text(f.size_bytes), f.digest[:12]),
        key=lambda f: f.path,
        nothing="There is no such file.",
    )


@command(app, "stats")
def stats(
    session: Session,
    dataset: ReferenceArgument,
    table: TableOption = None,
    project: ProjectOption = None,
) -> None:
    """Show the columns of a table and how their values are distributed."""
    name, version = _parts(dataset)
    slug = session.project(project)
    tables = session.client.datasets.tables(name, version, project=slug)
    left_out = _omitted_tables_note(session.client.datasets.version(name, version, project=slug))
    data_tables = [data_table for data_table in tables if table in (None, data_table.name)]
    if not data_tables:
        raise UsageMistake(
            "There is no such table in this version.",
            next_step=f"Tables: {', '.join(item.name for item in tables) or 'none'}. {left_out}",
        )
    for note in (left_out and f"Tables: {left_out}", data_tables[0].note, *_notes(data_tables[0])):
        if note:
            session.output.note(note)
    show_list(
        session,
        PageOf(items=list(data_tables[0].statistics.columns)),
        columns=[
            ListColumn("Column", style="bold"),
            ListColumn("Type"),
            ListColumn("Values"),
            ListColumn("Missing"),
            ListColumn("Distinct", dispensable=1),
            ListColumn("Min"),
            ListColumn("Mean"),
            ListColumn("Max"),
            ListColumn("Most frequent", fit=CellOverflow.WRAPPED, dispensable=2),
        ],
        row=_column,
        key=lambda c: c.name,
        nothing="The table has no columns.",
    )


def _notes(table: DataTableOut) -> list[str]:
    """Return the read settings of the table: missing values, encoding, renamed columns."""
    schema = table.table_schema
    if schema is None:
        return []
    notes = [
        *schema.notes,
        *(
            f"{table_column.name}: {table_column.note}"
            for table_column in schema.columns
            if table_column.note
        ),
    ]
    if schema.encoding:
        notes.append(f"Encoding: {schema.encoding}.")
    if schema.separator:
        words = ", ".join(map(repr, schema.missing))
        in_text = ", ".join(map(repr, schema.missing_in_text)) or "none"
        notes.append(f"Missing values: {words}; in text columns: {in_text}.")
    return notes


def _column(column: ColumnStatistics) -> tuple[str | int | None, ...]:
    number = column.number
    return (
        column.name,
        column.type,
        column.count,
        column.missing,
        column.distinct if column.distinct_is_exact else f"≈ {column.distinct}",
        number.exact_min or f"{number.min:g}" if number else column.earliest,
        f"{number.mean:g}" if number else None,
        number.exact_max or f"{number.max:g}" if number else column.latest,
        ", ".join(top.value for top in column.top[:3]) or None,
    )


@command(app, "diff")
def diff(
    session: Session,
    dataset: ReferenceArgument,
    since: Annotated[
        int | None,
        typer.Option("--since", min=1, help="Version to compare with. Default: the previous one."),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Show what changed in a version since an earlier one."""
    name, version = _parts(dataset)
    difference = session.client.datasets.changes(
        name, version, project=session.project(project), since=since
    )
    if session.output.as_json:
        session.output.document(difference)
        return
    session.output.facts(
        {
            "Since": f"{name}:{difference.since}",
            "Files added": difference.added.count,
            "Files removed": difference.removed.count,
            "Files changed": difference.changed.count,
            "Size": (
                f"{size_text(difference.size_bytes_before)} → "
                f"{size_text(difference.size_bytes_after)}"
            ),
        }
    )
    for table in difference.tables:
        session.output.line("")
        session.output.facts(
            {
                "Table": table.name,
                "Change": table.change,
                "Rows": f"{table.rows_before} → {table.rows_after}",
                "Columns": [_shift(column) for column in table.columns[:_MOST_COLUMNS]],
                "Left out": f"{len(table.columns) - _MOST_COLUMNS} more columns; see --json"
                if len(table.columns) > _MOST_COLUMNS
                else None,
            }
        )


def _shift(shift: ColumnShift) -> str:
    if shift.change == "type":
        return f"{shift.name}: {shift.before} → {shift.after}"
    if shift.change != "values":
        return f"{shift.name}: {shift.change}"
    if shift.mean_before is not None and shift.mean_after is not None:
        return f"{shift.name}: mean {shift.mean_before:g} → {shift.mean_after:g}"
    if shift.share_shift is not None:
        return f"{shift.name}: shares changed by up to {percent(shift.share_shift)}"
    return f"{shift.name}: other values"


@command(app, "uses")
def uses(session: Session, dataset: ReferenceArgument, project: ProjectOption = None) -> None:
    """List the jobs and runs that read a version, and the models they produced."""
    name, version = _parts(dataset)
    items = session.client.datasets.uses(name, version, project=session.project(project))
    show_list(
        session,
        PageOf[UseOut](items=list(items)),
        columns=[
            ListColumn("Job", style="bold"),
            ListColumn("Run"),
            ListColumn("Models"),
            ListColumn("By"),
        ],
        row=_use,
        key=lambda use: use.job or use.run or "",
        nothing="No job or run has read it yet.",
    )


def _use(use: UseOut) -> tuple[str | None, ...]:
    models = ", ".join(f"{model.name}:{model.version}" for model in use.models)
    return (use.job, use.run, models or None, use.by.email)


@command(app, "delete")
def delete(
    session: Session, dataset: ReferenceArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a dataset, or one version of it (DATASET:VERSION). Can be undone for three days."""
    slug = session.project(project)
    name, _, version = dataset.partition(":")
    confirm(f"Delete {dataset} of {slug}?", yes=yes, output=session.output)
    if version:
        session.client.datasets.delete_version(name, version, project=slug)
    else:
        session.client.datasets.delete(name, project=slug)
    session.output.note(f"Deleted {dataset}. Undo it: slipway dataset restore {dataset}")


@command(app, "restore")
def restore(session: Session, dataset: ReferenceArgument, project: ProjectOption = None) -> None:
    """Restore a deleted dataset, or a deleted version of one."""
    slug = session.project(project)
    name, _, version = dataset.partition(":")
    if version:
        if not version.isdecimal():
            raise UsageMistake("A version must be a number.", next_step=f"For example {name}:3.")
        session.client.datasets.restore_version(name, int(version), project=slug)
    else:
        session.client.datasets.restore(name, project=slug)
    session.output.note(f"{dataset} is restored.")
