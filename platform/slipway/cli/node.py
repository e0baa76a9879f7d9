"""`slipway node`: machines of the installation, for administrators."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path

import slipway
from slipway.cli.exits import UsageMistake
from slipway.cli.login import STDIN
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import Yes
from slipway.cli.prompts import confirm, read_secret
from slipway.cli.quantities import cpus_text, memory_text
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.credentials import clean_token, clean_url
from slipway.schemas.workloads import NodeDisk, NodeIsolation, NodeOut, Resources

app = typer.Typer(no_args_is_help=True, help="Nodes: list, show, edit, drain, remove, join.")

AGENT = "workers.node_agent"
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", help="Reason, shown to people whose work waits for the node."),
]


def resources_text(resources: Resources) -> str:
    """Return resources as text: 8 CPUs, 32 GiB, 2 GPUs."""
    parts = [f"{cpus_text(resources.cpu_millis)} CPUs", memory_text(resources.memory_bytes)]
    if resources.gpus:
        parts.append(f"{resources.gpus} GPUs")
    return ", ".join(parts)


def _isolation_text(isolation: NodeIsolation) -> str:
    features = f" ({', '.join(isolation.features)})" if isolation.features else ""
    level = f"{isolation.backend}: {isolation.level}{features}."
    return " ".join(filter(None, [level, isolation.meaning, isolation.detail]))


def _levels_text(node: NodeOut) -> str:
    """Return the isolation levels of a node as text: namespaces, or process shared, docker …"""
    if len({isolation.level for isolation in node.isolation}) == 1:
        return node.isolation[0].level
    return ", ".join(f"{each.backend} {each.level}" for each in node.isolation)


def _disk_text(disk: NodeDisk | None) -> str | None:
    """Return the disk size of a node and the limit of a task as text."""
    if disk is None:
        return None
    free = "" if disk.free_bytes is None else f", {memory_text(disk.free_bytes)} free"
    size, task = memory_text(disk.capacity_bytes), memory_text(disk.task_bytes)
    reserve = memory_text(disk.reserve_bytes)
    return f"{size}{free}. A task may use {task}, and {reserve} stay free."


def show(session: Session, node: NodeOut) -> None:
    """Print one node."""
    if session.output.as_json:
        session.output.document(node)
    elif session.output.quiet:
        session.output.line(node.name)
    else:
        session.output.facts(
            {
                "Name": node.name,
                "State": node.state,
                "Reason": node.reason,
                "Has": resources_text(node.capacity),
                "Free": resources_text(node.free),
                "GPU models": node.gpu_models,
                "Back ends": node.backends,
                "Python": node.pythons,
                "Labels": [f"{name}={value}" for name, value in node.labels.items()],
                "Disk": _disk_text(node.disk),
                "Isolation": [_isolation_text(level) for level in node.isolation],
                "Shared by projects": node.mixes_projects,
                "Tasks": node.tasks,
                "Last seen": node.last_seen_at,
                "Id": node.id,
            }
        )


@command(app, "list")
def list_nodes(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List the nodes with their resources, free capacity and load."""
    show_list(
        session,
        collect(session.client.nodes.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("State"),
            ListColumn("Has", fit=CellOverflow.WRAPPED),
            ListColumn("Free", fit=CellOverflow.WRAPPED),
            ListColumn("Isolation", fit=CellOverflow.WRAPPED, dispensable=2),
            ListColumn("Tasks", dispensable=1),
            ListColumn("CPU", dispensable=3),
            ListColumn("Last seen", dispensable=2),
            ListColumn("Reason", fit=CellOverflow.CLIPPED, dispensable=4),
        ],
        row=lambda n: (
            n.name,
            n.state,
            resources_text(n.capacity),
            resources_text(n.free),
            _levels_text(n),
            n.tasks,
            None if n.cpu_percent is None else f"{n.cpu_percent:.0f} %",
            n.last_seen_at,
            n.reason,
        ),
        key=lambda n: n.name,
        nothing="There is no node. Create a token for a machine: slipway node token",
    )


@command(app, "show")
def show_node(session: Session, node: NodeArgument) -> None:
    """Show one node with its resources and isolation."""
    show(session, session.client.nodes.get(node))


@command(app, "edit")
def edit(
    session: Session,
    node: NodeArgument,
    mix_projects: Annotated[
        bool | None,
        typer.Option(
            "--mix-projects/--no-mix-projects",
            help="Run several projects at a time without isolation between them.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Change the settings of a node."""
    if mix_projects:
        confirm(
            f"Let several projects share {node}? Code of one project can read files, memory and "
            "secrets of other projects that run on this node.",
            yes=yes,
            output=session.output,
        )
    show(session, session.client.nodes.edit(node, mixes_projects=mix_projects))


@command(app, "cordon")
def cordon(session: Session, node: NodeArgument, reason: ReasonOption = None) -> None:
    """Stop scheduling work on a node. Running work continues."""
    show(session, session.client.nodes.cordon(node, reason=reason))


@command(app, "drain")
def drain(session: Session, node: NodeArgument, reason: ReasonOption = None) -> None:
    """Stop scheduling work on a node, and move its workloads to other nodes if possible."""
    show(session, session.client.nodes.drain(node, reason=reason))


@command(app, "uncordon")
def uncordon(session: Session, node: NodeArgument) -> None:
    """Schedule work on a node again."""
    show(session, session.client.nodes.uncordon(node))


@command(app, "remove")
def remove(session: Session, node: NodeArgument, yes: Yes = False) -> None:
    """Remove a node from the installation. Its agent would have to join again."""
    confirm(f"Remove the node {node}? Its token stops working.", yes=yes, output=session.output)
    session.client.nodes.remove(node)
    if session.output.as_json:
        session.output.document({"removed": node})
    session.output.note(f"{node} was removed.")


@command(app, "token")
def token(
    session: Session,
    node: Annotated[
        str | None, typer.Option("--node", help="Bind the token to this node name.")
    ] = None,
    minutes: Annotated[
        int,
        typer.Option("--minutes", min=1, max=7 * 24 * 60, help="Minutes until the token expires."),
    ] = 60,
) -> None:
    """Create a one-time join token for a machine, and write it to standard output."""
    made = session.client.nodes.create_join_token(node=node, expires_in_minutes=minutes)
    if session.output.as_json:
        session.output.document(made)
        return
    session.output.note(
        f"The token works once, for {minutes} minutes, and is shown only now. On the machine:\n"
        f"  slipway node join {session.url} --token -"
    )
    session.output.line(made.join_token)


@command(app, "join")
def join(
    session: Session,
    server: Annotated[str, typer.Argument(metavar="URL", help="Address of the server.")],
    agent_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Options for the agent, after --."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="-",
            help="Read the join token from standard input, or ask for it: --token -",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the node.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="A label of the node."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="FOLDER", help="Folder for the files of the node."),
    ] = None,
) -> None:
    """Make this machine a node. Runs the node agent in the foreground until Ctrl-C."""
    if token not in (None, STDIN):
        raise UsageMistake(
            "A token on the command line can be read by other people on this machine.",
            field="token",
            next_step="Write --token - and paste it, or pipe it in with < FILE.",
        )
    address = clean_url(server)
    places = _places_of_agent()
    folder = (data_dir or user_data_path("slipway", appauthor=False) / "node").absolute()
    arguments = ["--url", address, "--data-dir", str(folder)]
    if token == STDIN:
        arguments += [
            "--token-file",
            str(
                _write_join_token(
                    clean_token(read_secret("Paste the join token (it stays hidden)")), folder
                )
            ),
        ]
    if name is not None:
        arguments += ["--name", name]
    for pair in label or ():
        arguments += ["--label", pair]
    session.output.note(f"Starting the node agent. Its files are in {folder}.")
    _become_agent([*arguments, *(agent_args or ())], places)


def _places_of_agent() -> list[str]:
    """Return the Python path for the agent, which is not part of the SDK.

    Raises UsageMistake where it is not installed.
    """
    sdk = Path(slipway.__path__[0]).resolve().parent
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(f"{AGENT}.__main__") is not None:
            return [str(sdk), *filter(None, sys.path)]
    # In a clone, the SDK is in platform/ and the agent beside it.
    if (sdk.parent / "workers" / "node_agent" / "__main__.py").is_file():
        return [str(sdk), str(sdk.parent)]
    raise UsageMistake(
        "The node agent is not installed here: the package slipway contains the SDK and this "
        "command only.",
        code="no_node_agent",
        next_step="Get Slipway's repository, run `make setup` in it, and run this command "
        "there with .venv/bin/slipway.",
    )


def _write_join_token(token: str, folder: Path) -> Path:
    """Write the join token to a file that only its owner can read, and return the file."""
    file = folder / "join-token"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(token + "\n")
    except OSError as error:
        raise UsageMistake(
            f"The folder {folder} cannot be written: {error.strerror}.",
            field="data_dir",
            next_step="Choose another with --data-dir.",
        ) from None
    return file


def _become_agent(arguments: Sequence[str], places: Sequence[str]) -> None:
    """Replace this process with the agent, to pass on signals and the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Keep the user's CLI token away from processes that run next to other people's code.
    environment = {
        name: value for name, value in os.environ.items() if not _is_slipway_variable(name)
    }
    environment["PYTHONPATH"] = os.pathsep.join(places)
    command = [sys.executable, "-m", AGENT, *arguments]
    os.execve(sys.executable, command, environment)  # noqa: S606


def _is_slipway_variable(name: str) -> bool:
    return name.startswith("SLIPWAY_")
