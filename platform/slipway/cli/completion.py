"""Shell completion of names. The server has one second to respond."""

import re
from collections.abc import Callable, Iterable
from threading import Thread

import typer

from slipway.client import Client
from slipway.credentials import default_project
from slipway.errors import SlipwayError
from slipway.retries import Retries

LIMIT_S = 1.0
MOST = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def complete_project(context: typer.Context, incomplete: str) -> list[str]:
    """Return slugs of projects that start with `incomplete`, none if the server is slow."""
    return _complete_from_portal(
        context,
        lambda client: (project.slug for project in client.projects.list().page(limit=MOST).items),
        incomplete,
    )


def complete_team(context: typer.Context, incomplete: str) -> list[str]:
    """Return slugs of teams that start with `incomplete`, none if the server is slow."""
    return _complete_from_portal(
        context,
        lambda client: (team.slug for team in client.teams.list().page(limit=MOST).items),
        incomplete,
    )


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Return ids of the newest jobs that start with `incomplete`, none if the server is slow."""

    def ids(client: Client) -> Iterable[str]:
        project = context.params.get("project") or default_project(client.url)
        if project is None:
            return []
        page = client.jobs.list(project=project).page(limit=MOST)
        return [job.workload.id for job in page.items]

    return _complete_from_portal(context, ids, incomplete)


def complete_tier(context: typer.Context, incomplete: str) -> list[str]:
    """Return slugs of tiers that start with `incomplete`, none if the server is slow."""
    return _complete_from_portal(
        context,
        lambda client: (tier.slug for tier in client.tiers.list().page(limit=MOST).items),
        incomplete,
    )


def complete_pool(context: typer.Context, incomplete: str) -> list[str]:
    """Return names of pools that start with `incomplete`, none if the server is slow."""
    return _complete_from_portal(
        context,
        lambda client: (pool.name for pool in client.pools.list().page(limit=MOST).items),
        incomplete,
    )


def complete_node_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return names of node groups that start with `incomplete`, none if the server is slow."""
    return _complete_from_portal(
        context,
        lambda client: (group.name for group in client.node_groups.list().page(limit=MOST).items),
        incomplete,
    )


def complete_optuna_storage(context: typer.Context, incomplete: str) -> list[str]:
    """Return Optuna storages that start with `incomplete`, none if the server is slow."""

    def names(client: Client) -> Iterable[str]:
        project = context.params.get("project") or default_project(client.url)
        if project is None:
            return []
        return [row.name for row in client.optuna.storages(project=project).page(limit=MOST).items]

    return _complete_from_portal(context, names, incomplete)


def _complete_from_portal(
    context: typer.Context, names: Callable[[Client], Iterable[str]], incomplete: str
) -> list[str]:
    items: list[str] = []

    def ask() -> None:
        try:
            url = context.params.get("url")
            with Client(url, timeout_s=LIMIT_S, retries=Retries(attempts=1)) as client:
                items.extend(names(client))
        except SlipwayError:
            return  # completion stays silent, the command itself reports it

    # A thread, because a network timeout does not bound a server that sends slowly.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    # Shells evaluate completions, so only plain slugs and ids may pass.
    return [name for name in list(items) if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
