"""`slipway tier`: hardware tiers and their prices."""

from typing import Annotated

import typer

from slipway.cli.completion import complete_tier
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.quantities import (
    cpus_text,
    memory_text,
    parse_cpus,
    parse_memory,
    parse_pairs,
    parse_price,
)
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.base import PageOf
from slipway.schemas.money import dollars
from slipway.schemas.workloads import MOST_DISCOUNT, TierOut

app = typer.Typer(no_args_is_help=True, help="Hardware tiers: list, create, price.")

TierArgument = Annotated[
    str, typer.Argument(metavar="TIER", help="Slug of the tier.", autocompletion=complete_tier)
]


DiscountOption = Annotated[
    int | None,
    typer.Option(
        "--preemptible-discount",
        min=0,
        max=MOST_DISCOUNT,
        metavar="PERCENT",
        help="How much less preemptible jobs cost that start from now on.",
    ),
]


def show(session: Session, tier: TierOut) -> None:
    """Write one tier."""
    if session.output.as_json:
        session.output.document(tier)
    elif session.output.quiet:
        session.output.line(tier.slug)
    else:
        session.output.facts(
            {
                "Slug": tier.slug,
                "Name": tier.name,
                "CPUs": cpus_text(tier.resources.cpu_millis),
                "Memory": memory_text(tier.resources.memory_bytes),
                "GPUs": tier.resources.gpus,
                "GPU model": tier.gpu_model,
                "Labels": [f"{name}={value}" for name, value in tier.labels.items()],
                "Price": f"{dollars(tier.nano_usd_per_hour)} an hour",
                "Preemptible": f"{dollars(tier.preemptible_nano_usd_per_hour)} an hour "
                f"({tier.preemptible_discount} % less)",
                "Active": tier.is_active,
            }
        )


@command(app, "list")
def list_tiers(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List the hardware tiers with their price per hour."""
    show_list(
        session,
        collect(session.client.tiers.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Slug", style="bold"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, dispensable=3),
            ListColumn("CPUs"),
            ListColumn("Memory"),
            ListColumn("GPUs"),
            ListColumn("GPU model", dispensable=2),
            ListColumn("An hour"),
            ListColumn("Free now", dispensable=1),
            ListColumn("Active", dispensable=4),
        ],
        row=lambda t: (
            t.slug,
            t.name,
            cpus_text(t.resources.cpu_millis),
            memory_text(t.resources.memory_bytes),
            t.resources.gpus,
            t.gpu_model,
            dollars(t.nano_usd_per_hour),
            t.free_tasks,
            t.is_active,
        ),
        key=lambda t: t.slug,
        nothing="There is no tier yet. The first node that joins creates some.",
    )


@command(app, "create")
def create(
    session: Session,
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="Short name.")],
    cpus: Annotated[str, typer.Option("--cpus", help="CPUs of one task: 2, or 0.5.")],
    memory: Annotated[str, typer.Option("--memory", help="Memory of one task: 8GiB.")],
    price: Annotated[str, typer.Option("--price", help="Dollars an hour of one task: 0.04.")],
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of one task.")] = 0,
    gpu_model: Annotated[
        str | None, typer.Option("--gpu-model", help="Only this GPU model.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Only nodes with this label."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Display name.")] = None,
    discount: DiscountOption = None,
) -> None:
    """Create a tier (administrators only)."""
    tier = session.client.tiers.create(
        name or slug,
        slug=slug,
        cpu_millis=parse_cpus(cpus),
        memory_bytes=parse_memory(memory),
        gpus=gpus,
        gpu_model=gpu_model,
        labels=parse_pairs(label, option="--label") if label else None,
        nano_usd_per_hour=parse_price(price, option="--price"),
        preemptible_discount=discount,
    )
    show(session, tier)


@command(app, "price")
def price(
    session: Session,
    tier: TierArgument,
    dollars_per_hour: Annotated[
        str | None,
        typer.Argument(metavar="DOLLARS", help="New price per hour from now on: 0.05."),
    ] = None,
) -> None:
    """List the prices of a tier, or set a new one that applies from now on."""
    if dollars_per_hour is not None:
        nano = parse_price(dollars_per_hour, option="DOLLARS")
        show(session, session.client.tiers.edit(tier, nano_usd_per_hour=nano))
        return
    show_list(
        session,
        PageOf(items=list(session.client.tiers.prices(tier))),
        columns=[ListColumn("From"), ListColumn("An hour")],
        row=lambda p: (p.effective_from, dollars(p.nano_usd_per_hour)),
        key=lambda p: str(p.nano_usd_per_hour),
        nothing="The tier has no price.",
    )


@command(app, "edit")
def edit(
    session: Session,
    tier: TierArgument,
    name: Annotated[str | None, typer.Option("--name", help="The new name.")] = None,
    active: Annotated[
        bool | None,
        typer.Option("--active/--retired", help="Allow new work on the tier.", show_default=False),
    ] = None,
    discount: DiscountOption = None,
) -> None:
    """Rename, retire or reinstate a tier, or set its discount (administrators only)."""
    edited = session.client.tiers.edit(
        tier, name=name, is_active=active, preemptible_discount=discount
    )
    show(session, edited)
