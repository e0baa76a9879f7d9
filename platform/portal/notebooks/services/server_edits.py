"""Changing when a notebook server stops and starts by itself."""

from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.core import clock
from portal.notebooks.models import Server
from portal.notebooks.server_moves import announce
from portal.notebooks.server_warnings import is_idle_warning, is_schedule_warning
from slipway.schemas.notebook_servers import ServerEdit, Weekday

_S_A_MINUTE = 60
_OF_SCHEDULE = frozenset({"daily_start", "daily_stop", "days"})


def edit_server(*, server: Server, wanted: ServerEdit) -> Server:
    """Change what is given, from now on: a time that has passed today is not made up for.

    What was warned of by the rules before is taken back, and warned of anew where it still holds.
    """
    with transaction.atomic():
        current = Server.objects.select_for_update(of=("self",)).get(pk=server.pk)
        asked = _asked(wanted)
        before = {name: getattr(current, name) for name in asked}
        after = {name: value for name, value in asked.items() if value != before[name]}
        if not after:
            return server
        changes: dict[str, Any] = dict(after)
        if _OF_SCHEDULE & after.keys():
            changes["schedule_seen_at"] = clock.now()
        if is_idle_warning(current.stops_why) or is_schedule_warning(current.stops_why):
            changes |= {"stops_at": None, "stops_why": ""}
        Server.objects.filter(pk=server.pk).update(**changes)
        announce(current)
        audit.record(
            "notebook.edit",
            kind="notebook",
            target=server,
            label=server.name,
            project=server.project,
            before={name: before[name] for name in after},
            after=after,
        )
    return server


def _asked(wanted: ServerEdit) -> dict[str, Any]:
    found: dict[str, Any] = {"daily_start": wanted.daily_start, "daily_stop": wanted.daily_stop}
    if wanted.idle_minutes is not None:
        found["idle_after_s"] = wanted.idle_minutes * _S_A_MINUTE
    if wanted.days is not None:
        found["days"] = [day.value for day in Weekday if day in wanted.days]
    return {name: value for name, value in found.items() if value is not None}
