"""`slipway node-group`: nodes that are made when work waits, and released when they are idle."""

from typing import Annotated

import typer

from slipway.cli.completion import complete_node_group
from slipway.cli.node import resources_text
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.pool import ForOption, SettingOption, parse_settings
from slipway.cli.quantities import parse_cpus, parse_memory, parse_pairs, parse_price
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.console import duration
from slipway.schemas.money import dollars
from slipway.schemas.node_groups import NodeGroupOut

app = typer.Typer(
    no_args_is_help=True, help="Node groups: nodes made for waiting work, released when idle."
)

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Name of the node group.", autocompletion=complete_node_group
    ),
]
MinOption = Annotated[int | None, typer.Option("--min", min=0, help="Least number of nodes.")]
StartingOption = Annotated[
    int | None, typer.Option("--starting", min=1, help="Machines that start at once.")
]
GraceOption = Annotated[
    int | None,
    typer.Option("--idle-grace", min=10, help="Seconds without work before a node leaves."),
]
JoinOption = Annotated[
    int | None,
    typer.Option("--join-within", min=30, help="Seconds within which a machine has to join."),
]


def show(session: Session, group: NodeGroupOut) -> None:
    """Write one group."""
    if session.output.as_json:
        session.output.document(group)
    elif session.output.quiet:
        session.output.line(group.name)
    else:
        cost = group.cost
        usual = group.usual_start_s
        session.output.facts(
            {
                "Name": group.name,
                "Provisioner": group.provisioner_label,
                "Open": group.is_open,
                "Node": resources_text(group.resources),
                "GPU model": group.gpu_model or None,
                "Labels": [f"{name}={value}" for name, value in group.labels.items()],
                "Nodes": _nodes_text(group),
                "Limits": f"{group.min_nodes} to {group.max_nodes} nodes, "
                f"{group.max_starting} starting at once",
                "Idle grace": duration(group.idle_grace_s),
                "Join within": duration(group.join_within_s),
                "Usual start": duration(usual) if usual is not None else None,
                "Price": f"{dollars(group.nano_usd_per_hour)} an hour and node",
                "Cost, 30 days": dollars(cost.nano_usd) if cost else None,
                "Of it overhead": _overhead_text(group),
                "Projects": group.projects if group.projects is not None else "all",
                "Settings": [f"{name}={value}" for name, value in group.settings.items()],
                "Problem": group.problem or None,
                "Next try": group.retry_at,
            }
        )


def _nodes_text(group: NodeGroupOut) -> str:
    text = f"{group.nodes} of {group.max_nodes}"
    if group.starting:
        text += f", {group.starting} starting"
    return f"{text}, {group.draining} leaving" if group.draining else text


def _overhead_text(group: NodeGroupOut) -> str | None:
    if group.cost is None:
        return None
    idle, starting = duration(group.cost.idle_s), duration(group.cost.starting_s)
    return f"{dollars(group.cost.overhead_nano_usd)} (idle {idle}, starting {starting})"


@command(app, "list")
def list_groups(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List the node groups."""
    show_list(
        session,
        collect(session.client.node_groups.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Provisioner"),
            ListColumn("Open"),
            ListColumn("Nodes"),
            ListColumn("Node"),
            ListColumn("An hour"),
            ListColumn("Problem", fit=CellOverflow.WRAPPED, dispensable=1),
        ],
        row=lambda group: (
            group.name,
            group.provisioner_label,
            group.is_open,
            _nodes_text(group),
            resources_text(group.resources),
            dollars(group.nano_usd_per_hour),
            group.problem,
        ),
        key=lambda group: group.name,
        nothing="There is no node group. Work runs on the nodes of the installation.",
    )


@command(app, "show")
def show_group(session: Session, group: GroupArgument) -> None:
    """Show one node group, and what its idle nodes cost."""
    show(session, session.client.node_groups.get(group))


@command(app, "machines")
def machines(
    session: Session, group: GroupArgument, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> None:
    """List the machines of a node group and what holds them (administrators only)."""
    show_list(
        session,
        collect(session.client.node_groups.machines(group), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("State"),
            ListColumn("Idle"),
            ListColumn("Cost"),
            ListColumn("Overhead"),
            ListColumn("Work", fit=CellOverflow.WRAPPED),
            ListColumn("Reason", fit=CellOverflow.WRAPPED, dispensable=1),
        ],
        row=lambda machine: (
            machine.name,
            machine.state,
            duration(machine.idle_s),
            dollars(machine.nano_usd),
            dollars(machine.overhead_nano_usd),
            "; ".join(machine.work),
            machine.failure or machine.reason or machine.detail,
        ),
        key=lambda machine: machine.name,
        nothing="The group has had no machine.",
    )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Short name.")],
    provisioner: Annotated[
        str,
        typer.Option("--provisioner", help="Service that makes the nodes: local, docker or ec2."),
    ],
    cpus: Annotated[str, typer.Option("--cpus", help="CPUs of one node: 8.")],
    memory: Annotated[str, typer.Option("--memory", help="Memory of one node: 32GiB.")],
    price: Annotated[str, typer.Option("--price", help="Dollars an hour of one node: 0.34.")],
    most: Annotated[int, typer.Option("--max", min=1, help="Greatest number of nodes.")],
    least: MinOption = None,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of one node.")] = 0,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="Model of the GPUs.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Label of the nodes."),
    ] = None,
    starting: StartingOption = None,
    idle_grace: GraceOption = None,
    join_within: JoinOption = None,
    setting: SettingOption = None,
    only_for: ForOption = None,
) -> None:
    """Create a node group (administrators only)."""
    group = session.client.node_groups.create(
        name,
        provisioner=provisioner,
        cpu_millis=parse_cpus(cpus),
        memory_bytes=parse_memory(memory),
        gpus=gpus,
        gpu_model=gpu_model,
        labels=parse_pairs(label, option="--label") if label else None,
        nano_usd_per_hour=parse_price(price, option="--price"),
        min_nodes=least,
        max_nodes=most,
        max_starting=starting,
        idle_grace_s=idle_grace,
        join_within_s=join_within,
        settings=parse_settings(setting),
        projects=only_for,
    )
    show(session, group)


@command(app, "edit")
def edit(
    session: Session,
    group: GroupArgument,
    least: MinOption = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, help="Greatest number of nodes.")
    ] = None,
    starting: StartingOption = None,
    idle_grace: GraceOption = None,
    join_within: JoinOption = None,
    price: Annotated[
        str | None, typer.Option("--price", help="Dollars an hour of nodes made from now on.")
    ] = None,
    setting: SettingOption = None,
    only_for: ForOption = None,
    is_open: Annotated[
        bool | None,
        typer.Option("--open/--closed", help="Let the group make nodes.", show_default=False),
    ] = None,
) -> None:
    """Change, close or open a node group (administrators only). Settings replace earlier ones."""
    changed = session.client.node_groups.edit(
        group,
        min_nodes=least,
        max_nodes=most,
        max_starting=starting,
        idle_grace_s=idle_grace,
        join_within_s=join_within,
        nano_usd_per_hour=None if price is None else parse_price(price, option="--price"),
        is_open=is_open,
        settings=parse_settings(setting),
        projects=only_for,
    )
    show(session, changed)


@command(app, "delete")
def delete(session: Session, group: GroupArgument) -> None:
    """Remove a node group that has no machine (administrators only)."""
    session.client.node_groups.delete(group)
    if session.output.as_json:
        session.output.document({"deleted": group})
    session.output.note(f"Removed node group {group}.")
