"""Servers that start and stop at a time of day, on chosen days, in UTC."""

import logging
from datetime import UTC, datetime, time, timedelta

from django.db.models import Q

from portal.core import clock
from portal.core.errors import SlipwayError
from portal.notebooks.culling import has_active_owner, warn_of_end
from portal.notebooks.models import Server
from portal.notebooks.server_lifecycle import ALIVE, AT_REST
from portal.notebooks.server_warnings import describe_schedule
from portal.notebooks.services.servers import start_server, stop_server
from slipway.schemas.notebook_servers import Weekday
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode

log = logging.getLogger(__name__)
_WEEK = list(Weekday)
# A start that was missed, such as during an outage, is made up for within this time, not later.
_LATE_AT_MOST = timedelta(hours=1)


def last_occurrence(at: str, days: list[str], timestamp: datetime) -> datetime | None:
    """Return the last time the clock showed `at` on one of `days`, up to `timestamp`."""
    return _occurrence(at, days, timestamp, range(8))


def next_occurrence(at: str, days: list[str], timestamp: datetime) -> datetime | None:
    """Return the next time it does, after `timestamp`."""
    return _occurrence(at, days, timestamp, range(0, -8, -1))


def _occurrence(at: str, days: list[str], timestamp: datetime, back: range) -> datetime | None:
    if not at:
        return None
    hour, minute = (int(part) for part in at.split(":"))
    for ago in back:
        day = timestamp.astimezone(UTC).date() - timedelta(days=ago)
        combine = datetime.combine(day, time(hour, minute), UTC)
        is_there = combine <= timestamp if back.step > 0 else combine > timestamp
        if is_there and _WEEK[day.weekday()] in days:
            return combine
    return None


def apply_schedules() -> None:
    """Start due servers, warn those that will stop, and stop those that are due."""
    timestamp = clock.now()
    timed = Server.objects.exclude(Q(daily_start="") & Q(daily_stop=""))
    for server in timed.select_related("tier", "workload", "project", "owner"):
        if server.status in ALIVE:
            _stop_or_warn(server, timestamp)
        _start(server, timestamp)


def _stop_or_warn(server: Server, timestamp: datetime) -> None:
    if server.workload is None:
        return
    due = last_occurrence(server.daily_stop, server.days, timestamp)
    why = describe_schedule(server.daily_stop)
    began = max(server.workload.created_at, server.schedule_seen_at)
    if due is not None and began < due:
        stop_server(server=server, reason=ReasonCode.MAX_LIFETIME, message=why)
        return
    coming = next_occurrence(server.daily_stop, server.days, timestamp)
    if coming is not None:
        warn_of_end(server, timestamp, coming, why)


def _start(server: Server, timestamp: datetime) -> None:
    """Start a server once for each due time, unless it runs already."""
    due = last_occurrence(server.daily_start, server.days, timestamp)
    seen = server.schedule_seen_at
    if due is None or due <= seen:
        return
    servers = Server.objects.filter(pk=server.pk, schedule_seen_at=seen)
    if not servers.update(schedule_seen_at=timestamp):
        return
    is_wanted = (
        server.status in AT_REST and timestamp - due <= _LATE_AT_MOST and has_active_owner(server)
    )
    if not is_wanted:
        return
    try:
        start_server(server=server)
    except SlipwayError as error:
        log.warning("the server %s was not started at its time: %s", server.pk, error.message)
        at_rest = [state.value for state in AT_REST]
        Server.objects.filter(pk=server.pk, state__in=at_rest).update(
            reason=shorten(f"It was not started at {server.daily_start} UTC: {error.message}", 500),
            next_step=shorten(error.next_step or "", 300),
        )
