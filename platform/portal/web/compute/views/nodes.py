"""Machines, for administrators: how they are, what runs there, joining and taking out of use."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import Administrator
from portal.accounts.principal import Principal, require_principal
from portal.compute.isolation import MIXING_RISK, Isolation
from portal.compute.join_command import join_command
from portal.compute.models import Node
from portal.compute.services.node_registration import NewJoinToken, create_join_token
from portal.compute.services.nodes import (
    cordon_node,
    drain_node,
    remove_node,
    set_project_mixing,
    uncordon_node,
)
from portal.core import clock
from portal.core.errors import InvalidInput, NotFound
from portal.core.policy import guarded_by
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, listing, search_parameter
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.compute.forms import JoinMachine, Reason
from portal.web.compute.presenters import workload_label
from portal.workloads.models import Lease

SORTS = {"name": "name"}
RUNNING_SHOWN = 200
_WHERE = {"area": "account", "section": "nodes"}
_TONES = {"ready": "ok", "cordoned": "warn", "draining": "warn", "lost": "bad", "silent": "warn"}


@dataclass(frozen=True)
class Machine:
    """A node as people see it: one that is silent is shown as lost, whatever was wanted of it.

    The percentages say how much of it is given away, and how busy it says it is.
    """

    node: Node
    state: str
    tone: str
    cpu_used: int
    memory_used: int
    cpu_busy: int | None
    memory_busy: int | None
    levels: tuple["Level", ...]

    @property
    def is_shared(self) -> bool:
        """True if some back end cannot isolate projects from each other."""
        return any(level.isolation.is_shared for level in self.levels)


@dataclass(frozen=True)
class Level:
    """The isolation of one back end, with what it means in plain words."""

    isolation: Isolation
    meaning: str
    tone: str


@dataclass(frozen=True)
class NodeTask:
    """Task on a node. `url` and the name are empty for projects without the person."""

    lease: Lease
    label: str
    url: str


@guarded_by(Administrator())
@require_safe
def nodes(request: HttpRequest) -> HttpResponse:
    """List the machines of the installation."""
    return _list(request, JoinMachine())


@guarded_by(Administrator())
@require_POST
def node_join(request: HttpRequest) -> HttpResponse:
    """Create a one-time token. Only this response shows it."""
    by = require_principal(request).user
    form = JoinMachine(request.POST)
    done = submit_form(request, form, lambda data: create_join_token(by=by, **data))
    return _list(request, JoinMachine() if done else form, done.result if done else None)


def _list(
    request: HttpRequest, form: JoinMachine, made: NewJoinToken | None = None
) -> HttpResponse:
    nodes_queryset = Node.objects.present()
    text = search_parameter(request, "q")
    nodes_queryset = nodes_queryset.filter(name__icontains=text) if text else nodes_queryset
    shown = listing(request, nodes_queryset, sorts=SORTS)
    command = join_command(made.token.node_name) if made else None
    context: dict[str, Any] = {
        "listing": shown,
        "region": "nodes",
        "layout": SETTINGS_LAYOUT,
        "rows": [_machine(node) for node in shown.page.items],
        "form": form,
        "made": made,
        "command": command,
        "command_line": f".venv/bin/{command.text}" if command else "",
    }
    return render(request, "web/nodes/list.html", context | _WHERE, status=status_of(form))


def _machine(node: Node) -> Machine:
    timestamp = clock.now()
    quiet = "silent" if node.is_quiet(timestamp) else node.state
    state = "lost" if node.is_lost(timestamp) else quiet
    used = node.memory_used_bytes
    return Machine(
        node=node,
        state=state,
        tone=_TONES.get(state, ""),
        cpu_used=_percent(node.used_cpu_millis, node.cpu_millis),
        memory_used=_percent(node.used_memory_bytes, node.memory_bytes),
        cpu_busy=None if node.cpu_percent is None else min(100, round(node.cpu_percent)),
        memory_busy=None if used is None else _percent(used, node.memory_bytes),
        levels=tuple(_level(node, isolation) for isolation in node.isolation_levels),
    )


def _level(node: Node, isolation: Isolation) -> Level:
    shared_tone = "bad" if node.mixes_projects else "warn"
    return Level(
        isolation=isolation,
        meaning=isolation.meaning(mixes_projects=node.mixes_projects),
        tone=shared_tone if isolation.is_shared else "ok",
    )


def _percent(part: int, whole: int) -> int:
    return min(100, round(100 * part / whole)) if whole else 0


@guarded_by(Administrator())
@require_safe
def node(request: HttpRequest, node: str) -> HttpResponse:
    """Show one machine and what runs there."""
    node_row = _get_node(node)
    context = {
        "machine": _machine(node_row),
        "node": node_row,
        "running": _running_on(node_row, require_principal(request)),
        "form": Reason(),
        "mixing_risk": MIXING_RISK,
    }
    return render(request, "web/nodes/node.html", context | _WHERE)


def _running_on(node: Node, principal: Principal) -> Shortlist[NodeTask]:
    """Return the tasks on a node. For projects without the person, only their kind."""
    leases = Lease.objects.open().filter(node=node).select_related("workload__project")
    live = set(principal.projects().live().values_list("pk", flat=True))
    running = shortlist(leases.order_by("granted_at"), RUNNING_SHOWN)
    return running.replaced_by(_node_task(lease, live) for lease in running)


def _node_task(lease: Lease, live: set[str]) -> NodeTask:
    label, url = workload_label(lease.workload, live)
    return NodeTask(lease, label, url)


@guarded_by(Administrator())
@require_POST
def node_change(request: HttpRequest, node: str) -> HttpResponse:
    """Cordon a machine, open it for work again, or end the mixing of projects there."""
    node_row, form = _get_node(node), Reason(request.POST)
    requested = request.POST.get("do", "")
    if requested not in ("cordon", "uncordon", "separate"):
        raise InvalidInput("Unknown action.", next_step="Use the buttons on the page.")
    reason = form.cleaned_data["reason"] if form.is_valid() else ""
    if requested == "cordon" and one_click(
        request, lambda: cordon_node(node=node_row, reason=reason)
    ):
        messages.success(
            request, f"{node} is cordoned: it gets no new work, and running work continues."
        )
    if requested == "uncordon" and one_click(request, lambda: uncordon_node(node=node_row)):
        messages.success(request, f"{node} accepts work again.")
    if requested == "separate":
        set_project_mixing(node=node_row, is_allowed=False)
        messages.success(request, f"{node} runs one project at a time; running work continues.")
    return redirect("node", node)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_mix(request: HttpRequest, node: str) -> HttpResponse:
    """Ask, then allow several projects at a time on a machine that cannot keep them apart."""
    node_row = _get_node(node)
    if request.method == "POST":
        set_project_mixing(node=node_row, is_allowed=True)
        messages.success(request, f"{node} can now run work of several projects at once.")
        return redirect("node", node)
    return show_confirmation(request, _mixing_confirmation(node_row))


def _mixing_confirmation(node: Node) -> Confirmation:
    return Confirmation(
        title=f"Allow projects to mix on {node.name}?",
        effects=(
            MIXING_RISK,
            "Work that waits for this node starts as soon as there is capacity.",
            "The audit log records this. You can disallow it at any time; running work continues.",
        ),
        button="Allow mixing",
        back=reverse("node", args=[node.name]),
        **_WHERE,
    )


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_drain(request: HttpRequest, node: str) -> HttpResponse:
    """Ask, then move work away from a machine."""
    node_row, form = _get_node(node), Reason(sent(request))
    if submit_form(request, form, lambda data: drain_node(node=node_row, **data)):
        messages.success(request, f"{node} is draining.")
        return redirect("node", node)
    return show_confirmation(request, _drain_confirmation(node_row), form)


def _drain_confirmation(node: Node) -> Confirmation:
    return Confirmation(
        title=f"Drain {node.name}?",
        effects=(
            f"{_tasks(node.tasks)} there: jobs stop and continue on other nodes from a checkpoint.",
            "Work that cannot be moved continues.",
            "It gets no new work until you uncordon it.",
        ),
        button=f"Drain {node.name}",
        back=reverse("node", args=[node.name]),
        **_WHERE,
    )


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_remove(request: HttpRequest, node: str) -> HttpResponse:
    """Ask, then take an empty machine out of the installation."""
    node_row = _get_node(node)
    if request.method == "POST":
        if one_click(request, lambda: remove_node(node=node_row)):
            messages.success(request, f"{node} removed.")
            return redirect("nodes")
        return redirect("node", node)
    return show_confirmation(request, _removal_confirmation(node_row))


def _removal_confirmation(node: Node) -> Confirmation:
    return Confirmation(
        title=f"Remove {node.name}?",
        effects=(
            "Its token stops working immediately; to return, it must join with a new token.",
            f"{_tasks(node.tasks)} there."
            + (" Drain it first: you can only remove an empty node." if node.tasks else ""),
            "Logs, checkpoints in the store and costs of past work are retained.",
        ),
        button=f"Remove {node.name}",
        back=reverse("node", args=[node.name]),
        **_WHERE,
    )


def _tasks(count: int) -> str:
    return {0: "Nothing runs", 1: "1 task runs"}.get(count, f"{count} tasks run")


def _get_node(name: str) -> Node:
    node_row = Node.objects.present().filter(name=name).first()
    if node_row is None:
        raise NotFound
    return node_row
