"""`slipway env`: named environments of a project, their versions and builds."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import DEFAULT_MAX_MB, IncludeOption, create_snapshot, upload
from slipway.errors import Conflict
from slipway.schemas.environments import EnvironmentAuditOut, EnvironmentVersionDetail
from slipway.terminal_text import tame
from slipway.training import requirements_fields, requirements_text

app = typer.Typer(
    no_args_is_help=True,
    help="Environments of a project: create, list, show, build, freeze, audit, default.",
)
NameArgument = Annotated[
    str, typer.Argument(metavar="ENVIRONMENT", help="Name of the environment.")
]
ReferenceArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENVIRONMENT", help="Name of the environment, or a version such as vision@3."
    ),
]
RequirementsOption = Annotated[
    Path | None,
    typer.Option(
        *("--file", "-f", "--requirements", "-r"),
        metavar="FILE",
        help="Requirements file with packages, environment.yml, conda-lock.yml or a list that "
        "begins with @EXPLICIT. Default: requirements.txt, or the file of the folder that a job "
        "would use.",
    ),
]
CodeOption = Annotated[
    str | None,
    typer.Option(
        "--code",
        metavar="FOLDER",
        help="Folder to upload, whose files the requirements may name, such as wheels.",
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="VERSION",
        help="Version of Python, such as 3.12. Default: that of the version before, or of the "
        "installation.",
    ),
]
_POLL_S = 1.0
_STATES = {"not_built": "not built"}


def _parsed(reference: str) -> tuple[str, int | None]:
    """Return name and number of a reference. Raises UsageMistake."""
    name, separator, number = reference.partition("@")
    if separator and not (number.isascii() and number.isdigit() and int(number)):
        raise UsageMistake(
            f"{reference} is not a version of an environment.",
            field="environment",
            next_step="Write a name and a number, such as vision@3, or the name alone.",
        )
    return name, int(number) if separator else None


def _state(build: str) -> str:
    return _STATES.get(build, build)


def _audit_lines(audit: EnvironmentAuditOut) -> list[str]:
    """Return what is known about vulnerabilities, one line each."""
    lines = [
        f"{it.package} {it.version}: {', '.join((it.id, *it.aliases))}; "
        f"{'fixed in ' + ', '.join(it.fixed) if it.fixed else 'no fixed version'}; "
        f"{it.summary or it.link}"
        for it in audit.vulnerabilities
    ]
    if audit.state == "checked" and audit.packages and not lines:
        lines.append(f"None known in {audit.packages} packages.")
    return [*lines, *([audit.reason] if audit.reason else [])]


def _show(session: Session, version: EnvironmentVersionDetail) -> None:
    if session.output.as_json:
        session.output.document(version)
    elif session.output.quiet:
        session.output.line(version.reference)
    else:
        session.output.facts(
            {
                "Version": version.reference,
                "Python": version.python or "of conda",
                "Channels": version.channels or None,
                "Build": _state(version.build),
                "Requested": version.requested or None,
                "Nodes": [f"{build.node}: {build.state}" for build in version.builds] or None,
                "Created": version.created_at,
                "By": version.created_by.name,
                "Packages": version.document.splitlines()
                if version.is_conda
                else version.requirements.splitlines(),
                "Vulnerabilities": _audit_lines(version.audit),
            }
        )


def _packages(
    session: Session,
    requirements: Path | None,
    code: str | None,
    include: list[str] | None,
    project: str,
) -> dict[str, str | None]:
    """Return the fields of a version: a text, or an uploaded folder and a file in it."""
    if code is None:
        if include:
            raise UsageMistake(
                "--include names files of a folder, and there is no --code.",
                field="include",
                next_step="Name the folder: --code .",
            )
        return {"requirements": requirements_text(requirements or "requirements.txt")}
    with create_snapshot(session, code, None, include, DEFAULT_MAX_MB) as snapshot:
        upload(session, snapshot, project)
        return {"snapshot": snapshot.digest, **requirements_fields(snapshot, requirements)}


@command(app, "create")
def create(
    session: Session,
    environment: NameArgument,
    requirements: RequirementsOption = None,
    code: CodeOption = None,
    include: IncludeOption = None,
    description: Annotated[
        str | None, typer.Option("--description", help="Purpose of the environment.")
    ] = None,
    python: PythonOption = None,
    project: ProjectOption = None,
) -> None:
    """Create an environment from a requirements file, a file of conda, or a folder with files."""
    slug, environments = session.project(project), session.client.environments
    environments.create(
        environment,
        **_packages(session, requirements, code, include, slug),
        project=slug,
        description=description,
        python=python,
    )
    _show(session, environments.version(environment, 1, project=slug))


@command(app, "version")
def add_version(
    session: Session,
    environment: NameArgument,
    requirements: RequirementsOption = None,
    code: CodeOption = None,
    include: IncludeOption = None,
    python: PythonOption = None,
    project: ProjectOption = None,
) -> None:
    """Add a version with other packages or another Python. Jobs in earlier versions keep them."""
    slug, environments = session.project(project), session.client.environments
    version = environments.add_version(
        environment,
        **_packages(session, requirements, code, include, slug),
        project=slug,
        python=python,
    )
    _show(session, version)


@command(app, "list")
def list_environments(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="List archived ones.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the environments of a project, newest first."""
    pages = session.client.environments.list(
        project=session.project(project), search=search, archived=archived
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Version"),
            ListColumn("Packages", dispensable=1),
            ListColumn("Python", dispensable=2),
            ListColumn("Build"),
            ListColumn("Default", dispensable=3),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=4),
        ],
        row=lambda e: (
            *(e.name, e.version, e.packages, e.python or "of conda", _state(e.build)),
            *("yes" if e.is_default else "", e.created_by.name),
        ),
        key=lambda e: e.name,
        nothing="No environment was found. Create one: slipway env create NAME -r FILE",
    )


@command(app, "versions")
def versions(
    session: Session,
    environment: NameArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the versions of an environment, newest first."""
    pages = session.client.environments.versions(environment, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Version", style="bold"),
            ListColumn("Packages"),
            ListColumn("Python", dispensable=2),
            ListColumn("Build"),
            ListColumn("Created", dispensable=1),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=3),
        ],
        row=lambda v: (
            *(v.reference, v.packages, v.python or "of conda"),
            *(_state(v.build), v.created_at, v.created_by.name),
        ),
        key=lambda v: v.reference,
        nothing="No version was found.",
    )


@command(app, "show")
def show(session: Session, environment: ReferenceArgument, project: ProjectOption = None) -> None:
    """Show a version of an environment: packages and builds. Default: the latest."""
    name, number = _parsed(environment)
    slug = session.project(project)
    _show(session, session.client.environments.version(name, number, project=slug))


@command(app, "build")
def build(
    session: Session,
    environment: ReferenceArgument,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until a node has built it, or all failed."),
    ] = True,
    project: ProjectOption = None,
) -> None:
    """Build a version on the nodes before a job needs it. Default: the latest."""
    name, number = _parsed(environment)
    slug, environments = session.project(project), session.client.environments
    try:
        version = environments.start_build(name, number, project=slug)
    except Conflict as error:
        if error.code != "already_built":
            raise
        session.output.note(error.message)
        _show(session, environments.version(name, number, project=slug))
        return
    nodes = ", ".join(version.requested)
    session.output.note(f"Building {version.reference} on {nodes or 'no other node'}.")
    while wait and version.requested and version.build != "ready":
        time.sleep(_POLL_S)
        version = environments.version(name, version.number, project=slug)
    _show(session, version)
    if wait and version.build == "failed":
        for failed in version.builds:
            session.output.note(f"Build log on node {failed.node}:")
            log = b"".join(environments.build_log(version.digest, project=slug, node=failed.node))
            for line in log.decode("utf-8", "replace").splitlines():
                session.output.note(tame(line, colours=False))
        raise typer.Exit(ExitCode.JOB_FAILED)


@command(app, "freeze")
def freeze(
    session: Session,
    environment: ReferenceArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Output file. Default: the terminal."),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Write the exact versions of packages that the first build resolved.

    Those of conda are a list with addresses and digests, which `--file` of `create` reads.
    """
    name, number = _parsed(environment)
    slug = session.project(project)
    text = session.client.environments.freeze(name, number, project=slug)
    if output is not None:
        try:
            output.expanduser().write_text(f"{text.rstrip()}\n", encoding="utf-8")
        except OSError as error:
            raise UsageMistake(
                f"{output} cannot be written: {error.strerror}.",
                field="output",
                next_step="Name a file in a folder that you may write to.",
            ) from error
        session.output.note(f"Wrote {output}.")
    if session.output.as_json:
        session.output.document({"environment": environment, "locked": text})
    elif output is None:
        sys.stdout.write(f"{text.rstrip()}\n")


@command(app, "audit")
def audit(session: Session, environment: ReferenceArgument, project: ProjectOption = None) -> None:
    """List known vulnerabilities of a version, as of the last daily check. Default: the latest.

    Ends with 12 if there are any, and with 7 if not all packages could be checked.
    """
    name, number = _parsed(environment)
    slug = session.project(project)
    result = session.client.environments.audit(name, number, project=slug)
    if session.output.as_json:
        session.output.document(result)
    elif session.output.quiet:
        for vulnerability in result.vulnerabilities:
            session.output.line(vulnerability.id)
    else:
        for line in _audit_lines(result):
            session.output.line(line)
        if result.checked_at is not None:
            session.output.note(f"Checked {result.checked_at:%Y-%m-%d %H:%M} UTC.")
    if result.vulnerabilities:
        raise typer.Exit(ExitCode.VULNERABLE)
    if result.state != "checked" or result.unchecked:
        raise typer.Exit(ExitCode.UNAVAILABLE)


@command(app, "default")
def default(
    session: Session,
    environment: Annotated[
        str | None,
        typer.Argument(metavar="[ENVIRONMENT]", help="Name of the new default environment."),
    ] = None,
    none: Annotated[
        bool, typer.Option("--none", help="Use the environment of the installation.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Show or set the environment of jobs and notebook servers that name no packages."""
    if environment is not None and none:
        raise UsageMistake(
            "An environment and --none contradict each other.", next_step="Leave one of them out."
        )
    slug, environments = session.project(project), session.client.environments
    if environment is None and not none:
        name = environments.default(project=slug)
    else:
        name = environments.set_default(environment, project=slug)
    if session.output.as_json:
        session.output.document({"environment": name})
    elif name is not None:
        session.output.line(name)
    else:
        session.output.note(f"Project {slug} uses the environment of the installation.")


@command(app, "archive")
def archive(session: Session, environment: NameArgument, project: ProjectOption = None) -> None:
    """Archive an environment: nothing new runs in it. `restore` undoes this."""
    archived = session.client.environments.archive(environment, project=session.project(project))
    if session.output.as_json:
        session.output.document(archived)
    session.output.note(f"Archived {environment}. Undo it: slipway env restore {environment}")


@command(app, "restore")
def restore(session: Session, environment: NameArgument, project: ProjectOption = None) -> None:
    """Restore an archived environment."""
    restored = session.client.environments.restore(environment, project=session.project(project))
    if session.output.as_json:
        session.output.document(restored)
    session.output.note(f"Restored {environment}.")
