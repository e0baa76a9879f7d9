"""Follows the machines of node groups: what was requested, joined, became idle, and left.

Each step handles one machine, in a transaction of its own, and may be repeated or interrupted
anywhere: the row says what has to happen next. A provisioner that is away delays its own group.
"""

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from portal.accounts import audit
from portal.compute.lifecycle import MachineState, NodeState, node_sources
from portal.compute.models import GroupMachine, Node, NodeGroup
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    Provisioner,
    ProvisionerAway,
    ProvisionerRefused,
    provisioner_kinds,
    provisioner_label,
)
from portal.compute.services.machine_meter import meter_machine
from portal.compute.services.node_registration import (
    create_machine_token,
    joined_as,
    revoke_machine_token,
)
from portal.compute.signals import NodeChanged, node_changed
from portal.core import clock
from portal.core.text import span_text
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
# A provisioner may report a new machine, and so its absence means nothing, only after this long.
_UNSEEN = timedelta(minutes=2)
# A node without work and without heartbeats for so long is replaced.
_SILENT = timedelta(minutes=3)
# Provisioners of groups without machines are asked this often for machines that nobody knows.
_LOOK_EVERY = timedelta(minutes=1)
# Machines that nobody knows are released this long after the audit log has named them.
UNKNOWN_GRACE = timedelta(minutes=10)
_FIRST_BACKOFF = timedelta(seconds=30)
_LONGEST_BACKOFF = timedelta(minutes=30)
_AWAY_PAUSE = timedelta(seconds=10)
_MOST_OUTPUT = 4000


def follow_machines(group: NodeGroup) -> Provisioner | None:
    """Follow the machines of a group. Returns its provisioner, None while that is away."""
    machines = list(GroupMachine.objects.open().filter(group=group).select_related("group", "node"))
    timestamp = clock.now()
    is_due = group.looked_at is None or group.looked_at <= timestamp - _LOOK_EVERY
    try:
        provisioner = provisioner_kinds()[group.provisioner].open(group.pk, group.settings)
        if not machines and not is_due:
            return provisioner
        for machine in machines:
            if machine.state == MachineState.REQUESTED:
                request_machine(provisioner, machine)
        reports = provisioner.look()
        NodeGroup.objects.filter(pk=group.pk).update(looked_at=timestamp)
        for machine in machines:
            _follow(provisioner, machine, reports.get(machine.name))
        _adopt_unknown(group, provisioner, reports)
    except ProvisionerAway as problem:
        note_away(group, problem)
        return None
    return provisioner


def note_away(group: NodeGroup, problem: ProvisionerAway) -> None:
    """Store that the provisioner of a group does not answer."""
    text = f"{provisioner_label(group.provisioner)} does not answer: {problem}"
    NodeGroup.objects.filter(pk=group.pk).update(
        problem=shorten(text, 500), retry_at=clock.now() + _AWAY_PAUSE
    )


def commit_machines(group: NodeGroup, count: int, *, known: Collection[str]) -> list[GroupMachine]:
    """Create the rows of machines to request, if the group has exactly the `known` machines.

    So two passes at once do not both request what one of them should. Limits of the group apply.
    """
    with transaction.atomic():
        group = NodeGroup.objects.select_for_update(no_key=True).get(pk=group.pk)
        if not group.is_open or group.removed_at or group.is_backing_off(clock.now()):
            return []
        counted = GroupMachine.objects.counted().filter(group=group)
        if set(counted.values_list("pk", flat=True)) != set(known):
            return []
        starting = GroupMachine.objects.starting().filter(group=group).count()
        count = min(count, group.max_nodes - len(known), group.max_starting - starting)
        return [
            GroupMachine.objects.create(
                group=group,
                name=f"{group.name}-{secrets.token_hex(5)}",
                nano_usd_per_hour=group.nano_usd_per_hour,
            )
            for _ in range(count)
        ]


def request_machine(provisioner: Provisioner, machine: GroupMachine) -> None:
    """Ask the provisioner for a machine. Repeated until it answers. Raises ProvisionerAway."""
    group = machine.group
    order = MachineOrder(
        name=machine.name,
        amount=group.amount,
        gpu_model=group.gpu_model,
        labels=tuple(sorted(group.node_labels.items())),
        join_token=create_machine_token(machine=machine),
    )
    try:
        handle = provisioner.make(order)
    except ProvisionerRefused as refusal:
        text = f"{provisioner_label(group.provisioner)} refused it: {refusal}"
        _fail(machine, MachineState.FAILED, text, ended_at=clock.now())
        return
    timestamp = clock.now()
    if GroupMachine.objects.move(
        machine.pk,
        MachineState.STARTING,
        handle=handle,
        started_at=timestamp,
        metered_until=timestamp,
    ):
        machine.refresh_from_db()


def _fail(machine: GroupMachine, target: MachineState, text: str, **changes: object) -> None:
    """Note that a machine did not come, and keep the group from requesting others for a while."""
    text = shorten(text, 500)
    with transaction.atomic():
        group = NodeGroup.objects.select_for_update(no_key=True).get(pk=machine.group_id)
        meter_machine(machine.pk, clock.now())
        if not GroupMachine.objects.move(machine.pk, target, failure=text, **changes):
            return
        revoke_machine_token(machine)
        pause = min(_FIRST_BACKOFF * 2 ** min(group.failures, 10), _LONGEST_BACKOFF)
        NodeGroup.objects.filter(pk=group.pk).update(
            failures=min(group.failures + 1, 1000), problem=text, retry_at=clock.now() + pause
        )


def _follow(provisioner: Provisioner, machine: GroupMachine, report: MachineReport | None) -> None:
    machine.refresh_from_db()
    timestamp = clock.now()
    if report is not None and shorten(report.detail, 500) != machine.detail:
        machine.detail = shorten(report.detail, 500)
        GroupMachine.objects.filter(pk=machine.pk).update(detail=machine.detail)
    if machine.state == MachineState.STARTING:
        _follow_starting(provisioner, machine, report, timestamp)
    elif machine.state == MachineState.JOINED:
        _follow_joined(machine, report, timestamp)
    elif machine.state == MachineState.DRAINING:
        _follow_draining(provisioner, machine, report, timestamp)


def _is_gone(machine: GroupMachine, report: MachineReport | None, timestamp: datetime) -> bool:
    if report is not None:
        return report.phase in (MachinePhase.GONE, MachinePhase.ENDING)
    return machine.started_at is None or machine.started_at <= timestamp - _UNSEEN


def _follow_starting(
    provisioner: Provisioner,
    machine: GroupMachine,
    report: MachineReport | None,
    timestamp: datetime,
) -> None:
    node = joined_as(machine)
    if node is not None:
        with transaction.atomic():
            meter_machine(machine.pk, timestamp)
            is_new = GroupMachine.objects.move(
                machine.pk,
                MachineState.JOINED,
                node=node,
                joined_at=timestamp,
                idle_since=timestamp,
            )
        if is_new:
            NodeGroup.objects.filter(pk=machine.group_id).update(
                failures=0, retry_at=None, problem=""
            )
        return
    if _is_gone(machine, report, timestamp):
        why = report.detail if report is not None else ""
        text = f"It ended before it joined{f': {why}' if why else ''}."
    elif machine.started_at and machine.started_at <= timestamp - machine.group.join_within:
        text = f"It did not join within {span_text(machine.group.join_within)}."
    else:
        return
    output = provisioner.output(machine.handle)[-_MOST_OUTPUT:]
    last = output.strip().splitlines()[-1] if output.strip() else ""
    if last:
        text = f"{text} The end of its console: {last}"
    _fail(machine, MachineState.DRAINING, text, output=output, draining_at=timestamp)


def _follow_joined(
    machine: GroupMachine, report: MachineReport | None, timestamp: datetime
) -> None:
    node = machine.node
    if node is None or node.state == NodeState.REMOVED:
        drain_machine(machine, "Its node was removed.")
        return
    _count_idle_time(machine, node, timestamp)
    is_gone = _is_gone(machine, report, timestamp)
    ended = f"{provisioner_label(machine.group.provisioner)} ended it."
    if is_gone and Node.objects.move(node.pk, NodeState.CORDONED, reason=ended):
        node_changed.send_on_commit(NodeChanged(node.pk))  # nothing more is placed there
    if node.tasks:
        return
    if is_gone:
        drain_machine(machine, ended)
    elif node.state == NodeState.DRAINING:
        drain_machine(machine, "An administrator drained its node.")
    elif node.last_seen_at is not None and node.last_seen_at <= timestamp - _SILENT:
        drain_machine(machine, "Its node sends no heartbeats.")


def _count_idle_time(machine: GroupMachine, node: Node, timestamp: datetime) -> None:
    if bool(node.tasks) != bool(machine.idle_since):
        return
    rows = GroupMachine.objects.filter(pk=machine.pk, state=MachineState.JOINED)
    with transaction.atomic():
        meter_machine(machine.pk, timestamp)
        if node.tasks:
            idle_ms = machine.idle_time(timestamp) // timedelta(milliseconds=1)
            since = rows.filter(idle_since__isnull=False, idle_since=machine.idle_since)
            since.update(idle_since=None, idle_ms=idle_ms)
        else:
            rows.filter(idle_since__isnull=True).update(idle_since=timestamp)


def _follow_draining(
    provisioner: Provisioner,
    machine: GroupMachine,
    report: MachineReport | None,
    timestamp: datetime,
) -> None:
    since = machine.draining_at or timestamp
    is_known = bool(machine.joined_at or machine.failure)
    if not is_known and since > timestamp - UNKNOWN_GRACE:
        return
    if report is not None:
        provisioner.release(machine.handle)  # also what is left of one that is gone
        if report.phase is not MachinePhase.GONE:
            return
    if report is None and since > timestamp - _AWAY_PAUSE:
        provisioner.release(machine.handle)  # it may be too new to be listed
        return
    target = MachineState.FAILED if machine.failure else MachineState.RELEASED
    with transaction.atomic():
        meter_machine(machine.pk, timestamp)
        GroupMachine.objects.move(machine.pk, target, ended_at=timestamp)


def release_idle_machines(group: NodeGroup, *, needed: Collection[str]) -> int:
    """Release nodes without work for longer than the grace, never below the least.

    `needed` are ids of nodes for which work waits. Returns the number of machines released.
    """
    timestamp = clock.now()
    rows = GroupMachine.objects.filter(group=group, state=MachineState.JOINED)
    idle = rows.filter(idle_since__lte=timestamp - group.idle_grace).order_by("idle_since")
    released = 0
    for machine in idle.exclude(node__in=needed).select_related("group", "node"):
        reason = f"It had no work for {span_text(group.idle_grace)}."
        released += drain_machine(machine, reason, only_above_least=True)
    return released


def drain_machine(machine: GroupMachine, reason: str, *, only_above_least: bool = False) -> bool:
    """Take the node of a machine out of the installation, unless work was placed there.

    One guarded UPDATE of the node decides between this and a placement, which both need the row.
    Returns False if work came first, the group has no node to spare, or an administrator has
    cordoned the node.
    """
    timestamp = clock.now()
    with transaction.atomic():
        group = NodeGroup.objects.select_for_update(no_key=True).get(pk=machine.group_id)
        if only_above_least and group.is_open:
            counted = GroupMachine.objects.counted().filter(group=group).count()
            if counted <= group.min_nodes:
                return False
        if machine.node_id is not None:
            nodes = Node.objects.present().filter(pk=machine.node_id)
            empty = nodes.filter(tasks=0, state__in=node_sources(NodeState.REMOVED))
            if only_above_least:
                empty = empty.filter(state=NodeState.READY)
            if not empty.update(state=NodeState.REMOVED, reason=shorten(reason, 200)):
                if nodes.exists():
                    return False
            else:
                node_changed.send_on_commit(NodeChanged(machine.node_id))
        grace = group.idle_grace if only_above_least else timedelta()
        meter_machine(machine.pk, timestamp, grace=grace)
        return GroupMachine.objects.move(
            machine.pk,
            MachineState.DRAINING,
            reason=reason,
            draining_at=timestamp,
            idle_since=None,
            idle_ms=machine.idle_time(timestamp) // timedelta(milliseconds=1),
        )


def _adopt_unknown(
    group: NodeGroup, provisioner: Provisioner, reports: Mapping[str, MachineReport]
) -> None:
    """Note machines of the group that nobody knows, to release them after a while.

    A machine that exists although it was given up is released at once.
    """
    alive = {
        name: report
        for name, report in reports.items()
        if report.phase in (MachinePhase.STARTING, MachinePhase.RUNNING)
    }
    known = {row.name: row for row in GroupMachine.objects.filter(name__in=alive)}
    for name, report in alive.items():
        row = known.get(name)
        if row is not None:
            if not row.is_open:
                log.warning("released a machine that was given up", machine=name)
                provisioner.release(report.handle)
            continue
        _adopt(group, report)


def _adopt(group: NodeGroup, report: MachineReport) -> None:
    after = span_text(UNKNOWN_GRACE)
    reason = f"Slipway did not know it. It is released {after} after it was noticed."
    timestamp = clock.now()
    label = provisioner_label(group.provisioner)
    with transaction.atomic():
        _, is_new = GroupMachine.objects.get_or_create(
            name=report.name[:48],
            defaults={
                "group": group,
                "state": MachineState.DRAINING,
                "handle": report.handle,
                "detail": shorten(report.detail, 500),
                "reason": reason,
                "nano_usd_per_hour": group.nano_usd_per_hour,
                "started_at": timestamp,
                "metered_until": timestamp,
                "draining_at": timestamp,
            },
        )
        if is_new:
            audit.record(
                "node_group.unknown_machine",
                kind="node_group",
                target=group,
                label=group.name,
                after={"machine": report.name, "handle": report.handle, "provisioner": label},
            )
