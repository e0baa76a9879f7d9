"""Sentences about the node groups that could run a workload that waits."""

from datetime import timedelta
from statistics import median

from portal.accounts.models import Project
from portal.compute.models import GroupMachine, NodeGroup
from portal.compute.resources import Need, count_noun
from portal.compute.services.node_groups import expected_node
from portal.core import clock
from portal.core.text import span_text
from portal.workloads.models import Workload

_RECENT_STARTS = 10


def growth_reason(workload: Workload) -> str:
    """Return which node starts for work like this, or why none is requested, empty without a group.

    Call it for a workload that fits on no node now.
    """
    suiting = [
        group
        for group in NodeGroup.objects.usable_by(workload.project).order_by("nano_usd_per_hour")
        if expected_node(group).suits(workload.need)
        and expected_node(group).max_amount_for(workload.need).covers(workload.amount)
    ]
    sentences = [_starting_text(group) for group in suiting]
    starting = [sentence for sentence in sentences if sentence]
    if starting:
        return starting[0]
    reasons = [_reason(group, workload) for group in suiting]
    return reasons[0] if reasons else ""


def growth_estimate(project: Project, need: Need, tasks: int) -> str:
    """Return that a node would be made for new work that fits nowhere, and how long that takes.

    Empty where no open group may make as many nodes as it needs, or the last one did not come.
    """
    for group in NodeGroup.objects.usable_by(project).order_by("nano_usd_per_hour"):
        node = expected_node(group)
        per_node = node.max_amount_for(need).count_of(need.amount) if node.suits(need) else 0
        counted = GroupMachine.objects.counted().filter(group=group).count()
        needed = -(-tasks // per_node) if per_node else 0
        if not needed or group.problem or counted + needed > group.max_nodes:
            continue
        usual = usual_start(group)
        takes = f"; that usually takes {span_text(usual)}" if usual is not None else ""
        subject = "A node" if needed == 1 else f"{needed} nodes"
        return (
            f"{subject} of group {group.name} {'is' if needed == 1 else 'are'} made for it{takes}."
        )
    return ""


def usual_start(group: NodeGroup) -> timedelta | None:
    """Return the median time from request to join of the last machines, None without any."""
    joined = GroupMachine.objects.filter(group=group, joined_at__isnull=False).order_by("-pk")
    times = joined.values_list("created_at", "joined_at")[:_RECENT_STARTS]
    seconds = [(end - start).total_seconds() for start, end in times if end is not None]
    return timedelta(seconds=median(seconds)) if seconds else None


def _starting_text(group: NodeGroup) -> str:
    machines = list(GroupMachine.objects.starting().filter(group=group).order_by("pk"))
    if not machines:
        return ""
    since = span_text(clock.now() - machines[0].created_at)
    usual = usual_start(group)
    usually = f"; usually {span_text(usual)}" if usual is not None else ""
    subject = "a node" if len(machines) == 1 else f"{len(machines)} nodes"
    verb = "is" if len(machines) == 1 else "are"
    return f"{subject} of group {group.name} {verb} starting ({since}{usually})."


def _reason(group: NodeGroup, workload: Workload) -> str:
    counted = GroupMachine.objects.counted().filter(group=group).count()
    if group.problem:
        timestamp = clock.now()
        text = f"node group {group.name} gets no node. {group.problem.rstrip('.')}."
        if group.retry_at is not None and group.retry_at > timestamp:
            return f"{text} Slipway tries again in {span_text(group.retry_at - timestamp)}."
        return f"{text} Slipway tries again."
    per_node = expected_node(group).max_amount_for(workload.need).count_of(workload.amount)
    most = count_noun(group.max_nodes, "node")
    needed = -(-workload.nodes // per_node)
    if needed > group.max_nodes:
        return f"node group {group.name} may have {most}, and this needs {needed}."
    if counted >= group.max_nodes:
        return f"node group {group.name} has its most nodes ({counted}), and they are in use."
    if needed > group.max_nodes - counted:
        return (
            f"node group {group.name} may have {most}, of which {counted} are in use, and this "
            f"needs {needed}."
        )
    return f"a node of group {group.name} is about to be requested."
