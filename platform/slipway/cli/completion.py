"""Names a shell completes, asked from the server within a second."""

import re
from collections.abc import Callable, Iterable
from threading import Thread

import typer

from slipway.client import Client
from slipway.errors import SlipwayError
from slipway.retries import Retries
from slipway.schemas.base import SLUG_PATTERN

LIMIT_S = 1.0
MOST = 100
_SLUG = re.compile(SLUG_PATTERN)


def complete_project(context: typer.Context, incomplete: str) -> list[str]:
    """Return the slugs of projects that start with `incomplete`; none when the server is slow."""
    return _asked(
        context,
        lambda client: (project.slug for project in client.projects.list().page(limit=MOST).items),
        incomplete,
    )


def complete_team(context: typer.Context, incomplete: str) -> list[str]:
    """Return the slugs of teams that start with `incomplete`; none when the server is slow."""
    return _asked(
        context,
        lambda client: (team.slug for team in client.teams.list().page(limit=MOST).items),
        incomplete,
    )


def _asked(
    context: typer.Context, names: Callable[[Client], Iterable[str]], incomplete: str
) -> list[str]:
    found: list[str] = []

    def ask() -> None:
        try:
            url = context.params.get("url")
            with Client(url, timeout_s=LIMIT_S, retries=Retries(attempts=1)) as client:
                found.extend(names(client))
        except SlipwayError:
            return  # completion stays silent; the command itself will tell

    # A thread, because a timeout of the network does not bound a server that drips.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    # Shells evaluate what they are given, so nothing but plain slugs may pass.
    return [name for name in list(found) if name.startswith(incomplete) and _SLUG.fullmatch(name)]
