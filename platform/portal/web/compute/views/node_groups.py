"""Node groups, for administrators: the list, a new one, its machines, cost, settings, its end."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import Administrator
from portal.accounts.principal import require_principal
from portal.compute.models import GroupMachine, NodeGroup
from portal.compute.services.node_group_costs import group_cost
from portal.compute.services.node_groups import (
    change_node_group,
    create_node_group,
    remove_node_group,
)
from portal.compute.services.pools import named_projects
from portal.core import clock
from portal.core.errors import InvalidInput, NotFound
from portal.core.policy import guarded_by
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, listing, search_parameter
from portal.web.compute.node_group_forms import (
    NewNodeGroup,
    NodeGroupSettings,
    node_group_initial,
)
from portal.web.compute.node_group_presenters import machine_rows, node_group_rows
from portal.workloads.growth_reasons import usual_start

SORTS = {"name": "name"}
_WHERE = {"area": "account", "section": "node_groups"}


@guarded_by(Administrator())
@require_safe
def node_groups(request: HttpRequest) -> HttpResponse:
    """List the node groups with their use."""
    text = search_parameter(request, "q")
    queryset = NodeGroup.objects.present()
    queryset = queryset.filter(name__icontains=text) if text else queryset
    shown = listing(request, queryset, sorts=SORTS)
    context = {
        "listing": shown,
        "region": "node-groups",
        "layout": SETTINGS_LAYOUT,
        "rows": node_group_rows(shown.page.items),
    }
    return render(request, "web/node_groups/list.html", context | _WHERE)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_group_new(request: HttpRequest) -> HttpResponse:
    """Create a node group."""
    form = NewNodeGroup(sent(request))
    done = submit_form(request, form, lambda data: _create(form, data))
    if done:
        messages.success(request, f"Node group {done.result.name} created.")
        return redirect("node_group", done.result.name)
    context = {"form": form} | _WHERE
    return render(request, "web/node_groups/new.html", context, status=status_of(form))


def _create(form: NewNodeGroup, data: dict[str, Any]) -> NodeGroup:
    slugs = data["projects"]
    return create_node_group(
        name=data["name"],
        provisioner=data["provisioner"],
        settings=data["settings"],
        amount=data["amount"],
        gpu_model=data["gpu_model"],
        nano_usd_per_hour=data["price"],
        projects=None if slugs is None else named_projects(slugs),
        **form.limits(),
    )


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_group(request: HttpRequest, group: str) -> HttpResponse:
    """Show one group with its machines and what they cost. Change its settings."""
    group_row = _get_group(group)
    slugs = list(group_row.projects.order_by("slug").values_list("slug", flat=True))
    form = NodeGroupSettings(sent(request), initial=node_group_initial(group_row, slugs))
    if submit_form(request, form, lambda data: _change(group_row, slugs, form, data)):
        messages.success(request, "Saved. Nodes that exist go on.")
        return redirect("node_group", group)
    usual = usual_start(group_row)
    cost = group_cost(group_row)
    context = {
        "group": group_row,
        "row": node_group_rows([group_row])[0],
        "projects": slugs,
        "machines": machine_rows(group_row, require_principal(request).user),
        "cost": cost,
        "idle_s": cost.idle.total_seconds(),
        "starting_s": cost.starting.total_seconds(),
        "usual_s": usual.total_seconds() if usual is not None else None,
        "is_backing_off": group_row.is_backing_off(clock.now()),
        "form": form,
    }
    return render(
        request, "web/node_groups/node_group.html", context | _WHERE, status=status_of(form)
    )


def _change(
    group: NodeGroup, slugs: list[str], form: NodeGroupSettings, data: dict[str, Any]
) -> NodeGroup:
    # Projects that were archived since stay as they are unless the list changes.
    requested = data["projects"]
    is_same = requested is not None and not group.is_for_all and set(requested) == set(slugs)
    return change_node_group(
        group=group,
        settings=data["settings"],
        nano_usd_per_hour=data["price"],
        projects=None if requested is None or is_same else named_projects(requested),
        is_for_all=True if requested is None else None,
        **form.limits(),
    )


@guarded_by(Administrator())
@require_POST
def node_group_change(request: HttpRequest, group: str) -> HttpResponse:
    """Close a group, or open it again."""
    group_row, requested = _get_group(group), request.POST.get("do", "")
    if requested not in ("close", "open"):
        raise InvalidInput("Unknown action.", next_step="Use the buttons on the page.")
    change_node_group(group=group_row, is_open=requested == "open")
    if requested == "open":
        messages.success(request, f"{group} is open.")
    else:
        messages.success(request, f"{group} is closed: it makes no node, and idle nodes leave.")
    return redirect("node_group", group)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def node_group_remove(request: HttpRequest, group: str) -> HttpResponse:
    """Ask, then remove a group that has no machine."""
    group_row = _get_group(group)
    if request.method == "POST":
        if one_click(request, lambda: remove_node_group(group=group_row)):
            messages.success(request, f"Node group {group} removed.")
            return redirect("node_groups")
        return redirect("node_group", group)
    return show_confirmation(request, _removal_confirmation(group_row))


def _removal_confirmation(group: NodeGroup) -> Confirmation:
    machines = GroupMachine.objects.open().filter(group=group).count()
    return Confirmation(
        title=f"Remove node group {group.name}?",
        effects=(
            "No node is made for work that waits.",
            f"It still has machines ({machines}). Close the group and wait until they have left."
            if machines
            else "It has no machine.",
            "Logs, checkpoints and costs of past work are retained.",
        ),
        button=f"Remove {group.name}",
        back=reverse("node_group", args=[group.name]),
        **_WHERE,
    )


def _get_group(name: str) -> NodeGroup:
    group_row = NodeGroup.objects.present().filter(name=name).first()
    if group_row is None:
        raise NotFound
    return group_row
