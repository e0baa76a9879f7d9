"""Cost of the machines of node groups, and the part of it that nobody uses."""

from dataclasses import dataclass
from datetime import timedelta

from portal.compute.models import GroupMachine, NodeGroup
from portal.core import clock

WINDOW = timedelta(days=30)


@dataclass
class GroupCost:
    """Times and prices (nano-USD) of the machines of a group that were requested within WINDOW.

    The overhead is the price of the time before the join and of that without work. No project pays
    it: projects pay the price of the tier for what they use.
    """

    machines: int = 0
    total: timedelta = timedelta()
    idle: timedelta = timedelta()
    starting: timedelta = timedelta()
    nano_usd: int = 0
    overhead_nano_usd: int = 0


def group_cost(group: NodeGroup) -> GroupCost:
    """Return the cost of a group."""
    timestamp = clock.now()
    cost = GroupCost()
    for machine in GroupMachine.objects.filter(group=group, created_at__gt=timestamp - WINDOW):
        idle, starting = machine.idle_time(timestamp), machine.start_time(timestamp)
        cost.machines += machine.started_at is not None
        cost.total += machine.total_time(timestamp)
        cost.idle += idle
        cost.starting += starting
        cost.nano_usd += machine.cost(machine.total_time(timestamp))
        cost.overhead_nano_usd += machine.cost(idle + starting)
    return cost
