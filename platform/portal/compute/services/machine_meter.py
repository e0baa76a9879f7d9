"""Meters machines of node groups: what each costs by day and use, to the nano-dollar.

The uses of a machine follow each other without a gap. A slice costs the price of the time up to its
end less that of the time up to its begin, so that all slices add up to the cost of the machine.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import transaction
from django.db.models import F

from portal.compute.lifecycle import MachineState, MachineUse
from portal.compute.models import GroupMachine, MachineDay
from portal.core import clock

_DAY = timedelta(days=1)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class MachineSlice:
    """Part of the time of a machine, within one day in UTC."""

    day: date
    use: MachineUse
    ms: int
    nano_usd: int


def meter_machine(machine_id: str, until: datetime, *, grace: timedelta = timedelta()) -> None:
    """Add the time of a machine up to a moment to the days, in its stored use.

    Called in the transaction of a change of the use, before the change. Idempotent: the row says up
    to when it was metered. The last part of an idle time is the `grace` of a machine that leaves.
    """
    with transaction.atomic():
        machine = GroupMachine.objects.select_for_update(no_key=True).get(pk=machine_id)
        slices = list(unmetered_slices(machine, until, grace=grace))
        if not slices:
            return
        sums: dict[tuple[date, str], list[int]] = defaultdict(lambda: [0, 0])
        for part in slices:
            total = sums[part.day, part.use]
            total[0] += part.ms
            total[1] += part.nano_usd
        # One order for all, so that two transactions never wait for each other.
        for (day, use), (ms, nano_usd) in sorted(sums.items()):
            rows = MachineDay.objects.filter(group_id=machine.group_id, day=day, use=use)
            added = {"ms": F("ms") + ms, "nano_usd": F("nano_usd") + nano_usd}
            if not rows.update(**added):
                row = MachineDay(group_id=machine.group_id, day=day, use=use)
                MachineDay.objects.bulk_create([row], ignore_conflicts=True)
                rows.update(**added)
        GroupMachine.objects.filter(pk=machine.pk).update(metered_until=until)


def unmetered_slices(
    machine: GroupMachine, until: datetime | None = None, *, grace: timedelta = timedelta()
) -> Iterator[MachineSlice]:
    """Yield the time of a machine that is not in the days yet, up to now unless it has ended."""
    begin = machine.metered_until
    end = machine.ended_at or until or clock.now()
    use = _use_of(machine)
    if begin is None or use is None or begin >= end:
        return
    if use is MachineUse.IDLE and grace:
        turn = max(begin, end - grace)
        yield from _slices(machine, MachineUse.IDLE, begin, turn)
        yield from _slices(machine, MachineUse.GRACE, turn, end)
    else:
        yield from _slices(machine, use, begin, end)


def _use_of(machine: GroupMachine) -> MachineUse | None:
    if machine.state == MachineState.STARTING:
        return MachineUse.STARTING
    if machine.state == MachineState.JOINED:
        return MachineUse.WORK if machine.idle_since is None else MachineUse.IDLE
    if machine.state == MachineState.DRAINING:
        return MachineUse.ENDING
    return None


def _slices(
    machine: GroupMachine, use: MachineUse, begin: datetime, end: datetime
) -> Iterator[MachineSlice]:
    start = machine.started_at
    assert start is not None  # noqa: S101  (it is metered from its start on)
    while begin < end:
        day = begin.astimezone(UTC).date()
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) + _DAY
        stop = min(midnight, end)
        nano_usd = machine.cost(stop - start) - machine.cost(begin - start)
        ms = (stop - start) // _MS - (begin - start) // _MS
        yield MachineSlice(day, use, ms, nano_usd)
        begin = stop
