"""`slipway notebook`: save, files, history, diff, restore, branch, undelete, verify, run, output.

`slipway notebook delete` belongs to servers, and deletes a notebook if a path is given.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.environment_option import EnvironmentOption
from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import (
    DEFAULT_MAX_MB,
    CodeOption,
    HoursOption,
    IncludeOption,
    MaxMbOption,
    NameOption,
    ParamOption,
    RequirementsOption,
    TierOption,
    WatchOption,
    create_snapshot,
    finish,
    noted_interruption,
    upload,
)
from slipway.cli.transfer import receive_file
from slipway.errors import SlipwayError
from slipway.resources.jobs import job_body
from slipway.schemas.notebook_files import NotebookFileOut
from slipway.training import requirements_text

_LINES_SHOWN = 10
_NEEDED = "pip install 'slipway[notebooks]'"
NotebookArgument = Annotated[
    str, typer.Argument(metavar="NOTEBOOK", help="Path of a notebook in the project.")
]
VersionOption = Annotated[
    int | None, typer.Option("--version", min=1, help="Number of the version. Default: the newest.")
]
FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Notebooks on this machine.")
]


def register(app: typer.Typer) -> None:
    """Add the commands for files to the group."""
    verbs: Sequence[tuple[str, Callable[..., None]]] = (
        *(("save", save), ("files", files), ("history", history), ("diff", diff)),
        *(("restore", restore), ("branch", branch), ("verify", verify), ("run", run)),
        *(("output", output), ("undelete", undelete)),
    )
    for name, verb in verbs:
        command(app, name)(verb)


def save(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A notebook on this machine.")],
    path: Annotated[
        str | None, typer.Option("--path", help="Path in the project. Default: the file name.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Save a notebook as its newest version in the project."""
    place = path or file.as_posix().removeprefix("./")
    slug = session.project(project)
    saved = session.client.notebook_files.save(place, _bytes_of(file), project=slug)
    if session.output.as_json:
        session.output.document(saved)
    elif session.output.quiet:
        session.output.line(saved.id)
    else:
        session.output.line(f"{saved.path} is saved as version {saved.latest.number}.")


def files(
    session: Session,
    search: Annotated[str | None, typer.Option("--search", help="Part of the path.")] = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Deleted notebooks that can be restored.")
    ] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    project: ProjectOption = None,
) -> None:
    """List the notebooks of the project and whether they are reproducible."""
    slug = session.project(project)
    pages = session.client.notebook_files.list(project=slug, search=search, deleted=deleted)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Notebook", style="bold", fit=CellOverflow.WRAPPED),
            ListColumn("Version"),
            ListColumn("Reproducible"),
            ListColumn("Saved by", dispensable=2),
            ListColumn("Saved", dispensable=1),
        ],
        row=lambda file: (
            *(file.path, file.latest.number, file.badge),
            *(file.latest.saved_by, file.latest.created_at),
        ),
        key=lambda item: item.path,
        nothing="There is no notebook yet: slipway notebook save FILE",
    )


def history(
    session: Session,
    notebook: NotebookArgument,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    project: ProjectOption = None,
) -> None:
    """List the versions of a notebook, newest first."""
    slug = session.project(project)
    file = _get_file(session, notebook, slug)
    pages = session.client.notebook_files.versions(file.id, project=slug)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            *(
                ListColumn("Version", style="bold"),
                ListColumn("Saved"),
                ListColumn("By", dispensable=2),
            ),
            *(
                ListColumn("From", dispensable=1),
                ListColumn("Cells"),
                ListColumn("Source", dispensable=3),
            ),
        ],
        row=lambda notebook_version: (
            *(notebook_version.number, notebook_version.created_at, notebook_version.saved_by),
            *(
                _origin(notebook_version),
                notebook_version.cells,
                notebook_version.source_digest[:12],
            ),
        ),
        key=lambda item: str(item.number),
        nothing="There is no version.",
    )


def _origin(version: Any) -> str:
    if version.origin == "save":
        return "a save"
    if version.origin_version is None:
        return f"{version.origin} of a deleted notebook"
    where = f" of {version.origin_path}" if version.origin == "branch" else ""
    return f"{version.origin} of version {version.origin_version}{where}"


def diff(
    session: Session,
    item: Annotated[
        str, typer.Argument(metavar="NOTEBOOK", help="A local file, or a path in the project.")
    ],
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="A second file on this machine.")
    ] = None,
    since: Annotated[
        int | None, typer.Option("--from", min=1, help="Version to compare from.")
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--to", min=1, help="Version to compare with. Default: the newest."),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Compare two notebooks, or two versions of one, cell by cell."""
    differ = _needed("slipway.notebook_diff")
    if other is not None:
        before, after = _bytes_of(Path(item)), _bytes_of(Path(other))
    else:
        slug = session.project(project)
        file = _get_file(session, item, slug)
        newest = until or file.latest.number
        before = _version(session, file, since or max(1, newest - 1), slug)
        after = _version(session, file, newest, slug)
    text = differ.diff_text(_notebook(before, item), _notebook(after, other or item))
    if session.output.as_json:
        session.output.document({"is_same": not text, "diff": text})
        return
    for line in text.splitlines() or ["The two are identical."]:
        session.output.line(line)


def restore(
    session: Session,
    notebook: NotebookArgument,
    version: Annotated[int, typer.Option("--version", min=1, help="Version to restore.")],
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write it to this local file.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Restore an old version as the newest one. Later versions remain."""
    slug = session.project(project)
    file = _get_file(session, notebook, slug)
    made = session.client.notebook_files.restore(file.id, version, project=slug)
    if to is not None:
        _write(to, _version(session, file, made.number, slug))
    if session.output.as_json:
        session.output.document(made)
    else:
        session.output.line(f"Version {version} is version {made.number} now.")


def branch(
    session: Session,
    notebook: NotebookArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the new notebook.")],
    version: VersionOption = None,
    project: ProjectOption = None,
) -> None:
    """Create a notebook from a version of another one."""
    slug = session.project(project)
    file = _get_file(session, notebook, slug)
    made = session.client.notebook_files.branch(file.id, path, project=slug, version=version)
    if session.output.as_json:
        session.output.document(made)
    else:
        session.output.line(made.id if session.output.quiet else f"Made {made.path}.")


def delete_notebook(session: Session, path: str, project: str, *, yes: bool) -> None:
    """Delete a notebook and its versions after confirmation."""
    file = _get_file(session, path, project)
    count = file.latest.number
    confirm(
        f"Delete {file.path} with {count} version{'' if count == 1 else 's'}?",
        yes=yes,
        output=session.output,
    )
    session.client.notebook_files.delete(file.id, project=project)
    session.output.note(
        f"Deleted {file.path}. Its file in the workspace remains. "
        f"Undo it: slipway notebook undelete {file.path}"
    )


def undelete(
    session: Session,
    notebook: Annotated[
        str, typer.Argument(metavar="NOTEBOOK", help="Path of a notebook that was deleted.")
    ],
    project: ProjectOption = None,
) -> None:
    """Restore a notebook that was deleted within the last three days."""
    file = session.client.notebook_files.undelete(notebook, project=session.project(project))
    if session.output.as_json:
        session.output.document(file)
    else:
        session.output.line(file.id if session.output.quiet else f"{file.path} is restored.")


def verify(
    session: Session,
    files: FilesArgument,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail for cells that ran out of order or never.")
    ] = False,
    timeout: Annotated[
        int | None, typer.Option("--timeout", min=1, help="Time limit of a cell in seconds.")
    ] = None,
) -> None:
    """Run notebooks locally, each top to bottom in a clean kernel, and report differing outputs.

    Exits with code 11 if one of them is not reproducible.
    """
    running = _needed("slipway.notebook_execution")
    documents, is_fine = [], True
    for file in files:
        notebook = _readable(running, file)
        try:
            report, _ = running.verify_notebook(
                notebook, folder=file.resolve().parent, cell_timeout_s=timeout
            )
        except Exception as error:  # noqa: BLE001 - a kernel may die of anything
            raise SlipwayError(
                f"{file} could not be run: {type(error).__name__}: {error}",
                code="notebook_not_run",
                next_step="Run it in JupyterLab to see where its kernel stops.",
            ) from None
        passed = report.passed and not (strict and report.findings)
        is_fine = is_fine and passed
        documents.append({"file": str(file), **report.as_json(), "passed": passed})
        if not session.output.as_json:
            _print_report(session, file, report, passed=passed)
    if session.output.as_json:
        session.output.document({"passed": is_fine, "notebooks": documents})
    if not is_fine:
        raise typer.Exit(ExitCode.NOT_REPRODUCIBLE)


def _print_report(session: Session, file: Path, report: Any, *, passed: bool) -> None:
    word = "reproducible" if passed else "NOT reproducible"
    session.output.line(f"{file}: {word}; {report.ran} of {report.code_cells} code cells ran.")
    if session.output.quiet:
        return
    for finding in report.findings:
        session.output.line(f"  {finding.message} {finding.next_step}".rstrip())
        for label, text in (("saved", finding.saved), ("now", finding.fresh)):
            lines = text.splitlines()
            for line in lines[:_LINES_SHOWN]:
                session.output.line(f"    {label:>5} | {line}")
            if len(lines) > _LINES_SHOWN:
                session.output.line(f"    {label:>5} | … {len(lines) - _LINES_SHOWN} more lines")
    session.output.note_omitted(report.findings_left_out, "finding")


def run(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A notebook in the folder.")],
    tier: TierOption = None,
    param: ParamOption = None,
    requirements: RequirementsOption = None,
    environment: EnvironmentOption = None,
    name: NameOption = None,
    max_hours: HoursOption = None,
    code: CodeOption = ".",
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    project: ProjectOption = None,
    watch_it: WatchOption = False,
) -> None:
    """Run a notebook with the code of its folder as a job, and store its output notebook."""
    slug = session.project(project)
    script = _inside(code, file)
    with create_snapshot(session, code, None, include, max_mb) as snapshot:
        body = job_body(
            script=script,
            snapshot=snapshot.digest,
            git=snapshot.git,
            params=parse_pairs(param or (), option="--param"),
            tier=tier,
            requirements=requirements_text(requirements) if requirements else None,
            environment=environment,
            name=name,
            max_hours=max_hours,
        )
        upload(session, snapshot, slug)
    with noted_interruption(session):
        job = session.client.jobs.submit_body(body, project=slug)
    session.output.note(f"Its output notebook: slipway notebook output {job.workload.id}")
    finish(session, job, watch_it=watch_it)


def output(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file. Default: NAME.output.ipynb.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Download the output notebook of a job, complete or so far."""
    slug = session.project(project)
    known = session.client.notebook_files.run(job, project=slug)
    stem = Path(known.path).name.removesuffix(".ipynb")
    target = to or Path(f"{stem}.output.ipynb")
    with session.client.notebook_files.output(job, project=slug) as content:
        receive_file(session, content, target, label="Receiving")
    if session.output.as_json:
        session.output.document({"file": str(target), "job": job})
    else:
        session.output.line(str(target))


def _get_file(session: Session, notebook: str, project: str) -> NotebookFileOut:
    return session.client.notebook_files.get(notebook.removeprefix("./"), project=project)


def _version(session: Session, file: NotebookFileOut, number: int, project: str) -> bytes:
    with session.client.notebook_files.read(file.id, number, project=project) as content:
        return b"".join(content)


def _inside(folder: str, file: str) -> str:
    try:
        return Path(file).resolve().relative_to(Path(folder).resolve()).as_posix()
    except ValueError:
        raise UsageMistake(
            f"{file} is not in {folder}, whose code is uploaded.",
            field="file",
            next_step="Name its folder with --code.",
        ) from None


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageMistake(
            f"{file} cannot be read: {error.strerror}.",
            field="file",
            next_step="Name a notebook on this machine.",
        ) from None


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise UsageMistake(
            f"{file} cannot be written: {error.strerror}.",
            field="output",
            next_step="Choose another file with --output.",
        ) from None


def _notebook(content: bytes, name: str) -> Any:
    nbformat = _needed("nbformat")
    with suppress(ValueError, AttributeError, KeyError, TypeError, RecursionError):
        notebook = nbformat.v4.reads(content.decode())
        if isinstance(notebook.get("cells"), list):
            return notebook
    raise UsageMistake(
        f"{name} is not a notebook.", field="file", next_step="Name a file that ends in .ipynb."
    )


def _readable(running: Any, file: Path) -> Any:
    try:
        return running.read_notebook(file)
    except (ValueError, OSError) as error:
        system_message = getattr(error, "strerror", None)
        raise UsageMistake(
            f"{file} cannot be read: {system_message}." if system_message else f"{file} {error}.",
            field="file",
            next_step="Name a notebook on this machine.",
        ) from None


def _needed(module: str) -> Any:
    """Return a module that needs the extra `notebooks`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageMistake(
            f"This needs {error.name}, which is not installed here.",
            next_step=f"Install the requirements of notebooks: {_NEEDED}",
        ) from None
