"""Reason why the route to a running server is not open yet, and what to do about it."""

from datetime import datetime, timedelta

from portal.core import clock
from portal.notebooks.models import HEARD_EVERY, Hub, Server
from slipway.schemas.notebook_servers import NotebookState

_OPENING = "JupyterLab is running; the Hub is opening its route."
# Routes open quickly; a Hub polls at least this often.
_SOON = timedelta(seconds=10)
_SILENT = timedelta(seconds=45)
_NEXT_STEP = (
    "Nothing is lost, and the route opens automatically once that works again. If it takes "
    "longer, ask an administrator to check the hub and notebooks lines in logs/slipway.log in "
    "the data folder."
)


def describe_opening(server: Server) -> str:
    """Return the state of opening the route, and the cause of a long delay."""
    since = _overdue_since(server)
    if since is None:
        return _OPENING
    waited = describe_duration(clock.now() - since)
    return (
        f"JupyterLab is running, but its route is not open after {waited}: {_cause(server, since)}."
    )


def step_of_opening(server: Server) -> str:
    """Return what to do about a route that does not open, empty while the delay is short."""
    return _NEXT_STEP if _overdue_since(server) is not None else ""


def _overdue_since(server: Server) -> datetime | None:
    since = server.opening_since
    is_long = since is not None and clock.now() - since >= _SOON
    return since if is_long and server.status == NotebookState.OPENING else None


def _cause(server: Server, since: datetime) -> str:
    heard = Hub.objects.last_request_at()
    if heard is None:
        return "no Hub has ever connected to the portal"
    silent = clock.now() - heard
    if silent > _SILENT or heard < since - HEARD_EVERY:
        return f"the Hub has sent no heartbeat for {describe_duration(silent)}"
    if server.door_trouble:
        return server.door_trouble.rstrip(".")
    return "the Hub is still opening the route"


def describe_duration(span: timedelta) -> str:
    """Return a span as somebody would say it."""
    seconds = round(span.total_seconds())
    for size, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{seconds // size} {noun}s"
    return f"{seconds} second{'' if seconds == 1 else 's'}"
