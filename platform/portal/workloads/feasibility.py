"""Feasibility of a workload, given all nodes that exist and the quotas in force."""

from collections.abc import Callable
from dataclasses import replace

from portal.accounts.models import Project
from portal.compute.engines import engine_label
from portal.compute.models import Node, Pool, Quota, Tier
from portal.compute.resources import Amount, Need, amount_text, count_noun, cpus_text
from portal.compute.services.node_groups import possible_nodes
from portal.compute.services.pythons import sorted_pythons
from portal.core.errors import InvalidInput
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND

OTHER_PROJECT = (
    "Nodes with enough capacity cannot isolate projects and are running another project's work."
)


def refuse_impossible(
    *,
    project: Project,
    tier: Tier,
    tasks: int,
    backend: str = "",
    python: str = "",
    pool: Pool | None = None,
    is_preemptible: bool = False,
) -> None:
    """Raise InvalidInput, saying what is in the way, if this can never run on any node there is.

    Of a pool only its engine knows the nodes.
    """
    need = need_of(project, tier, backend=backend, python=python)
    if is_gang_without_network(need, tasks):
        raise InvalidInput(
            f"The network rule of project {project.slug} is platform, and tasks on several nodes "
            "need the network to reach each other.",
            code="network_rule_one_node",
            field="nodes",
            next_step="Use more processes on one node, or ask an owner to set the rule to open in "
            "the project's settings.",
        )
    if pool is not None:
        if is_preemptible:
            _refuse_preemptible(pool)
        _refuse_other_backend(backend, pool)
        _refuse_over_quota(project, tier, tasks)
        return
    nodes = possible_nodes(project)
    if not nodes:
        raise InvalidInput(
            "No node has joined this installation yet, so nothing can run.",
            code="no_nodes",
            field="tier",
            next_step="Ask an administrator to join a machine under Settings → Nodes.",
        )
    if backend and all(backend not in node.backends for node in nodes):
        offered = sorted({name for node in nodes for name in node.backends})
        raise InvalidInput(
            f"No node offers the back end {backend}; available: {' or '.join(offered)}.",
            code="no_such_backend",
            field="backend",
            next_step="Choose one that is offered, or ask an administrator to set it up on a node.",
        )
    if tasks > 1 and backend and not BACKENDS[backend].runs_gangs:
        raise InvalidInput(
            "Containers on different nodes cannot reach each other.",
            code="one_node_only",
            field="nodes",
            next_step=f"Use more processes on one node, or the back end {DEFAULT_BACKEND}.",
        )
    if need.network != "open" and not any(map(_network_filter(need), nodes)):
        raise InvalidInput(
            f"The network rule of project {project.slug} is platform, and no node can enforce it"
            f"{f' for the back end {backend}' if backend else ''}.",
            code="network_rule_not_enforced",
            next_step="Ask an administrator for a node whose isolation has the feature network, "
            "or an owner to set the rule to open in the project's settings.",
        )
    why = infeasible_reason(nodes, replace(need, python=""), tasks)
    if why:
        raise InvalidInput(
            f"No node can ever fit tier {tier.slug}: {why}"
            if tasks == 1
            else f"The nodes can never fit {tasks} tasks of tier {tier.slug}: {why}",
            code="never_fits",
            field="tier" if tasks == 1 else "nodes",
            next_step="Choose a smaller tier or fewer nodes.",
        )
    if why := _reason_of_python(nodes, need, tasks):
        raise InvalidInput(
            f"No node of tier {tier.slug} can run this: {why}",
            code="no_such_python",
            field="python",
            next_step="Choose a version that these nodes have, or ask an administrator to install "
            f"it on a node: uv python install {need.python}",
        )
    _refuse_over_quota(project, tier, tasks)


def _refuse_preemptible(pool: Pool) -> None:
    raise InvalidInput(
        f"In pool {pool.name}, {engine_label(pool.engine)} decides what is preempted.",
        code="preemptible_in_pool",
        field="preemptible",
        next_step="Leave preemptible out, or leave the pool out.",
    )


def _refuse_other_backend(backend: str, pool: Pool) -> None:
    if backend not in ("", DEFAULT_BACKEND):
        raise InvalidInput(
            f"In pool {pool.name} tasks are processes of the machines that its engine allocates.",
            code="no_such_backend",
            field="backend",
            next_step=f"Choose the back end {DEFAULT_BACKEND}, or leave the pool out.",
        )


def need_of(project: Project, tier: Tier, *, backend: str = "", python: str = "") -> Need:
    """Return what a task of a project in a tier asks of a node.

    `python` is the version of its environment, which counts where the back end uses the node's.
    """
    counts = not backend or BACKENDS[backend].uses_pythons
    return replace(
        tier.need,
        backend=backend,
        network=project.network_rule,
        python=python if counts else "",
    )


def is_gang_without_network(need: Need, tasks: int) -> bool:
    """Return True if several tasks need to reach each other but may not use the network."""
    return tasks > 1 and need.network != "open"


def _network_filter(need: Need) -> Callable[[Node], bool]:
    def enforces(node: Node) -> bool:
        able = node.network_backends
        return need.backend in able if need.backend else bool(able)

    return enforces


def infeasible_reason(nodes: list[Node], need: Need, tasks: int) -> str:
    """Return why some tasks can never run on these nodes at once, empty if they could."""
    why = _reason_without_python(nodes, replace(need, python=""), tasks)
    return why or _reason_of_python(nodes, need, tasks)


def _reason_without_python(nodes: list[Node], need: Need, tasks: int) -> str:
    amount = need.amount
    able = [node for node in nodes if not need.backend or need.backend in node.backends]
    if not able:
        return f"it needs the back end {need.backend}, and no node offers it."
    if need.network != "open":
        able = list(filter(_network_filter(need), able))
        if not able:
            return (
                "the network rule of its project is platform, and no node can enforce it. An "
                "owner can set the rule to open in the project's settings."
            )
    labelled = [node for node in able if node.is_of_kind(need)]
    if not labelled:
        join = ", ".join(f"{key}={value}" for key, value in need.labels)
        return f"it needs a node with the labels {join}, and none has them."
    if amount.gpus:
        model = f"{need.gpu_model} " if need.gpu_model else ""
        most_gpus = max(node.gpus_of(need.gpu_model) for node in labelled)
        if most_gpus < amount.gpus:
            has = f"the largest node has {most_gpus}" if most_gpus else "no node has any"
            return f"it needs {count_noun(amount.gpus, f'{model}GPU')}, but {has}."
    total = sum(node.max_amount_for(need).count_of(amount) for node in labelled)
    if total >= tasks:
        return ""
    if total:
        return f"all nodes together can run {total} at once."
    largest = max(labelled, key=lambda node: (node.cpu_millis, node.memory_bytes))
    return (
        f"it needs {amount_text(amount, need.gpu_model)} on one node; the largest, "
        f"{largest.name}, has {amount_text(largest.capacity)}."
    )


def _reason_of_python(nodes: list[Node], need: Need, tasks: int) -> str:
    """Return why the nodes that fit tasks lack their Python, empty if enough have it.

    Nodes that report no versions count as having it.
    """
    if not need.python:
        return ""
    other = replace(need, python="")
    fitting = [
        node
        for node in nodes
        if node.suits(other) and node.max_amount_for(other).count_of(other.amount)
    ]
    having = [node for node in fitting if node.is_of_kind(need)]
    if having and not _reason_without_python(having, other, tasks):
        return ""
    if having:
        return f"its environment needs Python {need.python}, and too few nodes have it."
    offered = ", ".join(sorted_pythons(version for node in fitting for version in node.pythons))
    return f"its environment needs Python {need.python}, and these nodes have {offered}."


def _refuse_over_quota(project: Project, tier: Tier, tasks: int) -> None:
    quotas = [(f"project {project.slug}", Quota.objects.filter(project=project).first())]
    if project.team is not None:
        named = f"team {project.team.slug}"
        quotas.append((named, Quota.objects.filter(team=project.team).first()))
    for owner, quota in quotas:
        over = over_limit(quota, tier.amount.times(tasks), Amount(0, 0, 0)) if quota else ""
        if over:
            raise InvalidInput(
                f"This can never start: the {owner} may use {over}.",
                code="over_quota",
                field="tier",
                next_step="Choose less, or ask an administrator to raise the quota.",
            )


def over_limit(quota: Quota, total: Amount, used: Amount) -> str:
    """Return which limit `total` on top of `used` goes over, in words, empty if none."""
    if quota.cpu_millis is not None and used.cpu_millis + total.cpu_millis > quota.cpu_millis:
        return f"{cpus_text(quota.cpu_millis)} at once and this needs {cpus_text(total.cpu_millis)}"
    if quota.gpus is not None and total.gpus and used.gpus + total.gpus > quota.gpus:
        return f"{count_noun(quota.gpus, 'GPU')} at once and this needs {total.gpus}"
    if quota.running == 0:
        return "nothing at all"
    return ""
