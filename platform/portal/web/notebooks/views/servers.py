"""Notebook servers of a project: the list, one server, its start and its end."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core.policy import guarded_by
from portal.notebooks.file_gates import NotebookRole, gated_notebook
from portal.notebooks.gates import ServerOwner, ServerRole, gated_server
from portal.notebooks.models import NotebookFile, Server
from portal.notebooks.server_lifecycle import ALIVE, AT_REST
from portal.notebooks.services.dashboards import dashboard_label, open_server_dashboard
from portal.notebooks.services.server_edits import edit_server
from portal.notebooks.services.servers import (
    delete_server,
    resume_server,
    start_server,
    stop_server,
)
from portal.notebooks.urls import url_of
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.environments import offer_environments
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.hardware import offer_tiers
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.pools import offer_pools
from portal.web.base.shortlist import shortlist
from portal.web.base.urls_for import address_of
from portal.web.notebooks.forms.servers import EditServer
from portal.web.notebooks.presenters.servers import (
    GROUPS,
    ServerStatus,
    server_status,
    server_statuses,
    servers_of,
)
from portal.web.workloads.presenters import log_section
from portal.workloads.models import WorkloadEvent
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.notebook_servers import NotebookState
from slipway.schemas.workspace_files import check_path

EVENTS_SHOWN = 100
_S_A_MINUTE = 60
_S_AN_HOUR = 3600
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_SEE_ONE = ServerRole(Role.VIEWER, Scope.WORKLOADS_READ)
_OWN = ServerOwner(Scope.WORKLOADS_WRITE)
_STOP = ServerOwner(Scope.WORKLOADS_WRITE, or_role=Role.MAINTAINER)
_WHERE = {"area": "projects", "section": "notebooks"}
# theme.js writes the cookie; JupyterLab has another origin and reads the parameter.
_THEME_COOKIE = "slipway-theme"
_THEME_PARAMETER = "slipway-theme"
_THEMES = ("light", "dark")


@guarded_by(_SEE)
@require_safe
def project_notebooks(request: HttpRequest, project: str) -> HttpResponse:
    """List the servers, newest first."""
    project_row, viewer = gated_project(request), require_principal(request).user
    servers = servers_of(project_row)
    if text := search_parameter(request, "q"):
        servers = servers.filter(name__icontains=text)
    if request.GET.get("who") == "me":
        servers = servers.filter(owner=viewer)
    if request.GET.get("state") in GROUPS:
        servers = servers.filter(state__in=GROUPS[request.GET["state"]][1])
    selects = (
        Select("state", "State", [(key, label) for key, (label, _) in GROUPS.items()]),
        Select("who", "Owner", [("me", "Mine")], default="Everybody's"),
    )
    shown = listing(request, servers, selects=selects)
    rows = server_statuses(shown.page.items, viewer)
    context = {
        "listing": shown,
        "region": "notebooks",
        "rows": rows,
        "any_active": any(row.is_active for row in rows),
        "rate": sum(row.rate for row in rows),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/notebooks/list.html", context | _WHERE)


@guarded_by(_SEE_ONE)
@require_safe
def project_notebook(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Show one server: how far it is, why it is alive, what stopping saves. `?open=1` goes in."""
    viewer = require_principal(request).user
    server_row = gated_server(request)
    context = _page(request, server_status(server_row, viewer))
    if server_row.workload is not None and request.headers.get("HX-Request") != "true":
        context |= log_section(server_row.workload, request)
    return render(request, "web/notebooks/server.html", context | _WHERE)


def _page(request: HttpRequest, status: ServerStatus) -> dict[str, Any]:
    server = status.server
    events = WorkloadEvent.objects.filter(workload=server.workload_id).order_by("-pk")
    maintains = gated_role(request).at_least(Role.MAINTAINER)
    return {
        "it": status,
        "server": server,
        "events": shortlist(events, EVENTS_SHOWN),
        "may_stop": status.is_mine or maintains,
        "dashboard": dashboard_label(server, require_principal(request).user),
        "opens": status.is_mine and request.GET.get("open") == "1",
        "file": search_parameter(request, "file"),
        "lab_path": _lab_path(request),
    }


@guarded_by(_OWN)
@require_POST
def project_notebook_dashboard(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Open the dashboard of the cluster beside a server, and lead the browser there."""
    server_row = gated_server(request)
    opened = one_click(
        request,
        lambda: open_server_dashboard(
            server=server_row,
            by=require_principal(request),
            session_key=request.session.session_key or "",
        ),
    )
    page = address_of(server_row.project, "notebook", server_row.pk)
    return redirect(opened.result.url if opened else page)


@guarded_by(_OWN)
@require_safe
def project_notebook_open(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Go to JupyterLab, or to the page with the progress of the start.

    `?file=` opens a notebook by its id, `?path=` a file of the workspace. JupyterLab takes the
    theme of the portal.
    """
    server_row, notebook = gated_server(request), search_parameter(request, "file")
    path = _lab_path(request)
    if server_row.status == NotebookState.READY:
        files = NotebookFile.objects.of_project(server_row.project).current()
        file = files.filter(pk=notebook).first() if notebook else None
        theme = request.COOKIES.get(_THEME_COOKIE)
        query = f"?{_THEME_PARAMETER}={theme}" if theme in _THEMES else ""
        return redirect(url_of(server_row, file.path if file else path) + query)
    if server_row.status in ALIVE:
        return redirect(opening_page(server_row, notebook, path))
    return redirect(address_of(server_row.project, "notebook", server_row.pk))


def _lab_path(request: HttpRequest) -> str:
    """Return the path that JupyterLab is to open, "" for none and for one that is not valid."""
    try:
        return check_path(request.GET.get("path", ""))
    except ValueError:
        return ""


def opening_page(server: Server, notebook: str = "", path: str = "") -> str:
    """Return the address of a server's page that goes on to JupyterLab when it is ready."""
    query = {"open": "1"} | ({"file": notebook} if notebook else {})
    query |= {"path": path} if path else {}
    return f"{address_of(server.project, 'notebook', server.pk)}?{urlencode(query)}"


@guarded_by(NotebookRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE))
@require_POST
def project_notebook_lab(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Open a notebook in the person's server, which is started, or launched by the form."""
    file, by = gated_notebook(request), require_principal(request).user
    done = one_click(request, lambda: resume_server(project=file.project, by=by))
    if not done:
        return redirect(address_of(file.project, "notebook_file", file.pk))
    if done.result is None:
        form = address_of(file.project, "notebook_new")
        return redirect(f"{form}?{urlencode({'file': file.pk})}")
    # A page, which goes on by script: a form may not lead to the subdomain of a person.
    return redirect(opening_page(done.result, file.pk))


@guarded_by(_OWN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_edit(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Change where a server runs, and when it stops and starts by itself."""
    server_row = gated_server(request)
    form = EditServer(
        sent(request),
        initial=_times_of(server_row),
        is_at_rest=server_row.status in AT_REST,
    )
    if submit_form(request, form, lambda _: _edited(server_row, form)):
        messages.success(request, f"{server_row.name} updated.")
        return redirect(address_of(server_row.project, "notebook", server_row.pk))
    offer_tiers(form, server_row.project, _tiers_for(server_row))
    offer_pools(form, server_row.project, server_row.owner)
    packages = "own packages" if server_row.requirements else "that of the installation"
    if server_row.environment_version is not None:
        packages = server_row.environment_version.reference
    offer_environments(form, server_row.project, automatic=f"Unchanged: {packages}")
    context = {"form": form, "server": server_row}
    return render(request, "web/notebooks/edit.html", context | _WHERE, status=status_of(form))


def _times_of(server: Server) -> dict[str, Any]:
    return {
        "tier": server.tier.slug,
        "pool": server.pool and server.pool.name,
        "idle_minutes": server.idle_after_s // _S_A_MINUTE,
        "max_hours": server.max_lifetime_s and server.max_lifetime_s / _S_AN_HOUR,
        "daily_start": server.daily_start,
        "daily_stop": server.daily_stop,
        "days": server.days,
    }


def _tiers_for(server: Server) -> QuerySet[Tier]:
    """Return the tiers on offer and that of the server, on offer or not."""
    offered = Q(is_active=True) | Q(pk=server.tier_id)
    return Tier.objects.filter(offered).order_by("nano_usd_per_hour", "slug")


def _edited(server: Server, form: EditServer) -> Server:
    assert form.payload is not None  # noqa: S101  (the form is valid)
    return edit_server(server=server, spec=form.payload)


@guarded_by(_OWN)
@require_POST
def project_notebook_start(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Start a server again, and open it when it is ready."""
    server_row, by = gated_server(request), require_principal(request).user
    back = address_of(server_row.project, "notebook", server_row.pk)
    started = one_click(request, lambda: start_server(server=server_row, by=by))
    return redirect(opening_page(server_row) if started else back)


@guarded_by(_STOP)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_stop(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Ask, then stop a server."""
    server_row, by = gated_server(request), require_principal(request).user
    back = address_of(server_row.project, "notebook", server_row.pk)
    if request.method == "POST":
        if one_click(request, lambda: stop_server(server=server_row, by=by)):
            messages.success(request, f"{server_row.name} is stopping.")
        return redirect(back)
    whose = "your" if server_row.owner_id == by.pk else f"{server_row.owner.display_name}'s"
    return show_confirmation(
        request,
        Confirmation(
            title=f"Stop {whose} notebook server {server_row.name}?",
            effects=(
                "Kernel memory is lost, and running cells are interrupted.",
                (
                    "Files, packages installed with pip and open notebooks are retained for the "
                    "next start."
                ),
            ),
            button="Stop the server",
            back=back,
            area="projects",
            section="notebooks",
        ),
    )


@guarded_by(_STOP)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_delete(request: HttpRequest, project: str, server: str) -> HttpResponse:
    """Ask, then forget a server that does not run."""
    server_row = gated_server(request)
    if request.method == "POST":
        if one_click(request, lambda: _deleted(request)):
            messages.success(request, f"{server_row.name} deleted. Its files stay in the project.")
            return redirect(address_of(server_row.project, "notebooks"))
        return redirect(address_of(server_row.project, "notebook", server_row.pk))
    return show_confirmation(
        request,
        Confirmation(
            title=f"Delete the notebook server {server_row.name}?",
            effects=(
                "It is removed from the list; past costs stay under Spend.",
                "Files stay in the project's workspace.",
            ),
            button="Delete the server",
            back=address_of(server_row.project, "notebook", server_row.pk),
            area="projects",
            section="notebooks",
        ),
    )


def _deleted(request: HttpRequest) -> bool:
    delete_server(server=gated_server(request))
    return True
