"""Pools, for administrators: the list, a new one, its use and settings, its end."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import Administrator
from portal.accounts.principal import require_principal
from portal.compute.models import Pool
from portal.compute.services.pools import (
    change_pool,
    create_pool,
    named_projects,
    remove_pool,
    uses_of_pool,
)
from portal.core.errors import InvalidInput, NotFound
from portal.core.policy import guarded_by
from portal.spend.pool_usage import present_pool_usage
from portal.spend.windows import MONTH, TODAY, WEEK
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, listing, search_parameter
from portal.web.compute.pool_forms import NewPool, PoolSettings, pool_initial
from portal.web.compute.presenters import allocation_rows, pool_rows
from portal.workloads.models import Workload

SORTS = {"name": "name"}
_WHERE = {"area": "account", "section": "pools"}


@guarded_by(Administrator())
@require_safe
def pools(request: HttpRequest) -> HttpResponse:
    """List the pools with their use."""
    text = search_parameter(request, "q")
    queryset = Pool.objects.present()
    queryset = queryset.filter(name__icontains=text) if text else queryset
    shown = listing(request, queryset, sorts=SORTS)
    context = {
        "listing": shown,
        "region": "pools",
        "layout": SETTINGS_LAYOUT,
        "rows": pool_rows(shown.page.items),
    }
    return render(request, "web/pools/list.html", context | _WHERE)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def pool_new(request: HttpRequest) -> HttpResponse:
    """Create a pool."""
    form = NewPool(sent(request))
    done = submit_form(request, form, _create)
    if done:
        messages.success(request, f"Pool {done.result.name} created.")
        return redirect("pool", done.result.name)
    return render(request, "web/pools/new.html", {"form": form} | _WHERE, status=status_of(form))


def _create(data: dict[str, Any]) -> Pool:
    slugs = data["projects"]
    return create_pool(
        name=data["name"],
        engine=data["engine"],
        settings=data["settings"],
        most_requests=data["most_requests"],
        price_percent=data["price_percent"],
        projects=None if slugs is None else named_projects(slugs),
    )


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def pool(request: HttpRequest, pool: str) -> HttpResponse:
    """Show one pool, what it has in flight, and its bill. Change its settings."""
    pool_row = _get_pool(pool)
    slugs = _project_slugs(pool_row)
    window = search_parameter(request, "window") or MONTH
    form = PoolSettings(sent(request), initial=pool_initial(pool_row, slugs))
    if submit_form(request, form, lambda data: _change(pool_row, slugs, data)):
        messages.success(request, "Saved. Requests that wait or run there go on.")
        return redirect("pool", pool)
    context = {
        "pool": pool_row,
        "row": pool_rows([pool_row])[0],
        "projects": slugs,
        "allocations": allocation_rows(pool_row, require_principal(request)),
        "waiting": Workload.objects.waiting_in(pool_row.pk).count(),
        "form": form,
        "usage": present_pool_usage(pool_row, window),
        "windows": [(TODAY, "Today"), (WEEK, "7 days"), (MONTH, "This month")],
        "chosen": window,
    }
    return render(request, "web/pools/pool.html", context | _WHERE, status=status_of(form))


def _change(pool: Pool, slugs: list[str], data: dict[str, Any]) -> Pool:
    # Projects that were archived since stay as they are unless the list changes.
    requested = data["projects"]
    is_same = requested is not None and not pool.is_for_all and set(requested) == set(slugs)
    return change_pool(
        pool=pool,
        settings=data["settings"],
        most_requests=data["most_requests"],
        price_percent=data["price_percent"],
        projects=None if requested is None or is_same else named_projects(requested),
        is_for_all=True if requested is None else None,
    )


def _project_slugs(pool: Pool) -> list[str]:
    return list(pool.projects.order_by("slug").values_list("slug", flat=True))


@guarded_by(Administrator())
@require_POST
def pool_change(request: HttpRequest, pool: str) -> HttpResponse:
    """Close a pool, or open it again."""
    pool_row, requested = _get_pool(pool), request.POST.get("do", "")
    if requested not in ("close", "open"):
        raise InvalidInput("Unknown action.", next_step="Use the buttons on the page.")
    change_pool(pool=pool_row, is_open=requested == "open")
    if requested == "open":
        messages.success(request, f"{pool} is open.")
    else:
        messages.success(request, f"{pool} is closed: it takes no new work.")
    return redirect("pool", pool)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def pool_remove(request: HttpRequest, pool: str) -> HttpResponse:
    """Ask, then remove a pool in which nothing waits or runs."""
    pool_row = _get_pool(pool)
    if request.method == "POST":
        if one_click(request, lambda: remove_pool(pool=pool_row)):
            messages.success(request, f"Pool {pool} removed.")
            return redirect("pools")
        return redirect("pool", pool)
    return show_confirmation(request, _removal_confirmation(pool_row))


def _removal_confirmation(pool: Pool) -> Confirmation:
    use = " ".join(uses_of_pool(pool))
    advice = f"{use} Close the pool and wait until it is empty, or end what uses it."
    return Confirmation(
        title=f"Remove pool {pool.name}?",
        effects=(
            "New work cannot choose it any more.",
            advice if use else "Nothing waits or runs there, and no endpoint uses it.",
            "Accounts that people have linked there are unlinked.",
            "Logs, checkpoints and costs of past work are retained.",
        ),
        button=f"Remove {pool.name}",
        back=reverse("pool", args=[pool.name]),
        **_WHERE,
    )


def _get_pool(name: str) -> Pool:
    pool_row = Pool.objects.present().filter(name=name).first()
    if pool_row is None:
        raise NotFound
    return pool_row
