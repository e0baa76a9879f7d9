"""`slipway project`: create, edit, archive and share projects."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.cli import members
from slipway.cli.completion import complete_project, complete_team
from slipway.cli.exits import UsageMistake
from slipway.cli.members import Group
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.credentials import ServerLogin, read_logins, write_logins
from slipway.errors import NotLoggedIn
from slipway.schemas.accounts import NetworkRule, ProjectOut, Role

app = typer.Typer(no_args_is_help=True, help="Projects: create, edit, archive, share.")
member_app = typer.Typer(no_args_is_help=True, help="Manage the members of a project.")
app.add_typer(member_app, name="member")

ProjectArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROJECT",
        help="Slug of the project. Default: the one in use.",
        autocompletion=complete_project,
        show_default=False,
    ),
]
NamedProject = Annotated[
    str,
    typer.Argument(metavar="PROJECT", help="Slug of the project.", autocompletion=complete_project),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        "-p",
        metavar="PROJECT",
        help="Slug of the project. Default: the one in use.",
        autocompletion=complete_project,
        show_default=False,
    ),
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="E-mail address or user id.")]
RoleArgument = Annotated[Role, typer.Argument(metavar="ROLE", help="The new role.")]
RoleOption = Annotated[Role, typer.Option("--role", help="Role of the person.")]
DaysOption = Annotated[
    int, typer.Option("--days", min=1, max=30, help="Days until the link expires.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def show(session: Session, project: ProjectOut) -> None:
    """Write one project."""
    if session.output.as_json:
        session.output.document(project)
    elif session.output.quiet:
        session.output.line(project.slug)
    else:
        session.output.facts(
            {
                "Slug": project.slug,
                "Name": project.name,
                "Description": project.description,
                "Team": project.team,
                "Network": project.network,
                "Your role": project.role,
                "Created": project.created_at,
                "Archived": project.archived_at,
                "Id": project.id,
            }
        )


@command(app, "list")
def list_projects(
    session: Session,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Archived projects that you own.")
    ] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the projects you belong to, newest first."""
    pages = session.client.projects.list(search=search, archived=archived)
    nothing = (
        "No project was found."
        if search or archived
        else ("You have no project yet. Create one: slipway project create NAME")
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Slug", style="bold"),
            ListColumn("Name", fit=CellOverflow.WRAPPED),
            ListColumn("Team", dispensable=2),
            ListColumn("Your role", dispensable=1),
            ListColumn("Created", dispensable=3),
        ],
        row=lambda p: (p.slug, p.name, p.team, p.role, p.created_at),
        key=lambda p: p.slug,
        nothing=nothing,
    )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Display name.")],
    slug: Annotated[
        str | None,
        typer.Option("--slug", help="Short name in URLs. Default: derived from the name."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", "-d", help="Description.")
    ] = None,
    team: Annotated[
        str | None,
        typer.Option("--team", help="Slug of its team.", autocompletion=complete_team),
    ] = None,
) -> None:
    """Create a project that you own."""
    project = session.client.projects.create(name, slug=slug, description=description, team=team)
    show(session, project)
    session.output.note(f"Make it the default: slipway project use {project.slug}")


@command(app, "show")
def show_project(session: Session, project: ProjectArgument = None) -> None:
    """Show one project."""
    show(session, session.client.projects.get(session.project(project)))


@command(app, "edit")
def edit(
    session: Session,
    project: ProjectArgument = None,
    name: Annotated[str | None, typer.Option("--name", help="The new name.")] = None,
    description: Annotated[
        str | None, typer.Option("--description", "-d", help="The new description.")
    ] = None,
    network: Annotated[
        NetworkRule | None,
        typer.Option(
            "--network",
            help="Network access of tasks, set by owners: open (everything) or platform (only the "
            "portal and gateways).",
        ),
    ] = None,
) -> None:
    """Change the name, description or network rule. The slug never changes."""
    edited = session.client.projects.edit(
        session.project(project),
        name=name,
        description=description,
        network=network,
    )
    show(session, edited)


def markdown_text(path: str, *, field: str) -> str:
    """Return the text of a Markdown file. Raises UsageMistake if it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageMistake(
            f"{path} cannot be read: {reason}.",
            field=field,
            next_step="Name a text file in Markdown.",
        ) from error


@command(app, "readme")
def readme(
    session: Session,
    project: ProjectArgument = None,
    write: Annotated[
        str | None,
        typer.Option("--write", metavar="FILE", help="Save this Markdown file as the README."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=0,
            help="Version that the file was edited from, 0 for the first. Default: the current "
            "one. If somebody saved another one meanwhile, nothing is saved.",
        ),
    ] = None,
) -> None:
    """Show the README of a project, or save a file as its README."""
    slug, projects = session.project(project), session.client.projects
    if write is None:
        shown = projects.readme(slug)
    else:
        text = markdown_text(write, field="write")
        edited_from = projects.readme(slug).version if version is None else version
        shown = projects.save_readme(slug, text, version=edited_from)
    if session.output.as_json:
        session.output.document(shown)
    elif write is not None:
        session.output.note(f"Saved version {shown.version} of the README of {slug}.")
    elif shown.version:
        for line in shown.text.split("\n"):
            session.output.line(line)
    else:
        session.output.note(
            f"{slug} has no README yet. Write one: slipway project readme {slug} --write README.md"
        )


@command(app, "archive")
def archive(session: Session, project: NamedProject, yes: Yes = False) -> None:
    """Archive a project. Only its owners see it then, and can restore it."""
    value = session.client.projects.get(project)
    confirm(
        f"Archive the project {value.slug} ({value.name})? Only its owners will see it.",
        yes=yes,
        output=session.output,
    )
    session.client.projects.archive(project)
    if session.output.as_json:
        session.output.document({"archived": value.slug})
    session.output.note(
        f"{value.slug} is archived. Restore it: slipway project restore {value.slug}"
    )


@command(app, "restore")
def restore(session: Session, project: NamedProject) -> None:
    """Restore an archived project."""
    show(session, session.client.projects.restore(project))


@command(app, "use")
def use(
    session: Session,
    project: Annotated[
        str | None,
        typer.Argument(
            metavar="PROJECT",
            help="Slug of the project.",
            autocompletion=complete_project,
            show_default=False,
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Clear the default project.")] = False,
) -> None:
    """Set the default project of later commands. Without PROJECT, show it."""
    chosen = session.project(project) if not none else None
    if project is not None:
        session.client.projects.get(project)
    if project is not None or none:
        logins = read_logins()
        login: ServerLogin | None = logins.servers.get(session.url)
        if login is None:
            raise NotLoggedIn(
                f"This machine is not signed in to {session.url}, so the choice cannot be stored.",
                next_step=f"Run `slipway login {session.url}`, or set SLIPWAY_PROJECT.",
            )
        login.project = chosen
        write_logins(logins)
    if session.output.as_json:
        session.output.document({"project": chosen, "server": session.url})
    elif chosen is not None:
        session.output.line(chosen)
    else:
        session.output.note("No project is in use any more.")


@command(app, "members")
def list_members(
    session: Session,
    project: ProjectArgument = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the members of a project, direct or through its team."""
    group = Group(project=session.project(project))
    members.show_members(session, group, limit=limit, cursor=cursor)


@command(member_app, "set")
def set_member(
    session: Session, user: UserArgument, role: RoleArgument, project: ProjectOption = None
) -> None:
    """Change the role of a member."""
    members.set_role(session, Group(project=session.project(project)), user, role)


@command(member_app, "remove")
def remove_member(
    session: Session, user: UserArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Remove a member. Access ends immediately."""
    members.remove(session, Group(project=session.project(project)), user, yes=yes)


@command(app, "invite")
def invite(
    session: Session,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="E-mail address to invite.")],
    role: RoleOption = Role.CONTRIBUTOR,
    days: DaysOption = 7,
    project: ProjectOption = None,
) -> None:
    """Invite an e-mail address. Only that address can use the link."""
    members.invite(session, Group(project=session.project(project)), email, role, days)


@command(app, "invitations")
def list_invitations(
    session: Session,
    project: ProjectArgument = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the invitations to a project."""
    group = Group(project=session.project(project))
    members.show_invitations(session, group, limit=limit, cursor=cursor)
