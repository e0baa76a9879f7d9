"""Reason why the route to a running server is not open yet, and what to do about it."""

from datetime import datetime, timedelta

from portal.core import clock
from portal.notebooks.models import HEARD_EVERY, Hub, Server
from slipway.schemas.notebook_servers import NotebookState

_OPENING = "JupyterLab runs; the Hub opens the door to it."
# Routes open quickly; a Hub polls at least this often.
_SOON = timedelta(seconds=10)
_SILENT = timedelta(seconds=45)
_NEXT_STEP = (
    "Nothing is lost, and the door opens by itself once that works again. If it lasts, ask whoever "
    "runs this Slipway to look at the lines of hub and notebooks in logs/slipway.log of its data "
    "folder."
)


def words_of_opening(server: Server) -> str:
    """Return the state of opening the route, and the cause of a long delay."""
    since = _long_since(server)
    if since is None:
        return _OPENING
    waited = in_words(clock.now() - since)
    return f"JupyterLab runs, but no browser reaches it after {waited}: {_cause(server, since)}."


def step_of_opening(server: Server) -> str:
    """Return what to do about a route that does not open, empty while the delay is short."""
    return _NEXT_STEP if _long_since(server) is not None else ""


def _long_since(server: Server) -> datetime | None:
    since = server.opening_since
    is_long = since is not None and clock.now() - since >= _SOON
    return since if is_long and server.status == NotebookState.OPENING else None


def _cause(server: Server, since: datetime) -> str:
    heard = Hub.objects.last_heard()
    if heard is None:
        return "no Hub has ever asked the portal what to open"
    silent = clock.now() - heard
    if silent > _SILENT or heard < since - HEARD_EVERY:
        return f"the Hub, which opens the door, has not been heard of for {in_words(silent)}"
    if server.door_trouble:
        return server.door_trouble.rstrip(".")
    return "the Hub knows of it and is still at work on the door"


def in_words(span: timedelta) -> str:
    """Return a span as somebody would say it."""
    seconds = round(span.total_seconds())
    for size, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{seconds // size} {noun}s"
    return f"{seconds} second{'' if seconds == 1 else 's'}"
