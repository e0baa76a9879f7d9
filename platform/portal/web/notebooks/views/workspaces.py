"""Files of a workspace: a folder, a file, downloads, changes, and the way into JupyterLab."""

from dataclasses import replace
from typing import Any, cast, get_args

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RateLimited,
    SlipwayError,
    Unavailable,
)
from portal.core.policy import guarded_by
from portal.core.streams import private_download
from portal.notebooks.gates import WorkspaceMember
from portal.notebooks.services.servers import resume_server
from portal.notebooks.services.workspace_places import (
    Workspace,
    node_views,
    nodes_with_workspace,
    workspace_of,
)
from portal.notebooks.services.workspaces import (
    delete_entry,
    list_folder,
    make_folder,
    move_entry,
    open_download,
)
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import error_text, one_click, sent, status_of, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.urls_for import address_of
from portal.web.notebooks.forms.workspaces import MoveEntry, NewFolder, PlaceForm
from portal.web.notebooks.presenters.workspaces import (
    MOST_PREVIEWED_BYTES,
    FolderPicker,
    WorkspacePreview,
    columns_of,
    folder_url,
    picker_areas,
    picker_of,
    preview_file,
    query_of,
    rows_of,
    shown_name,
    trail_of,
)
from portal.web.notebooks.views.servers import opening_page
from slipway.schemas.accounts import Scope
from slipway.schemas.workspace_files import (
    MAX_TRANSFER_BYTES,
    MOST_LISTED,
    ListOrder,
    WorkspaceArea,
    check_path,
)

SHOWN = 200
_READ = WorkspaceMember(Scope.FILES_READ)
_CHANGE = WorkspaceMember(Scope.FILES_WRITE)
_OPEN = WorkspaceMember(Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "workspace"}


def _area(text: str) -> WorkspaceArea:
    return "personal" if text == "personal" else "shared"


def _path(text: str) -> str:
    """Return a path of the query. Raises InvalidInput."""
    try:
        return check_path(text)
    except ValueError as error:
        raise InvalidInput(
            f"path: {error}.", field="path", next_step="Open the file from its folder."
        ) from error


def _workspace(request: HttpRequest, values: Any) -> Workspace:
    return workspace_of(
        project=gated_project(request),
        person=require_principal(request).user,
        area=_area(values.get("area", "")),
        node=str(values.get("node", ""))[:48],
    )


@guarded_by(_READ)
@require_safe
def project_workspace(request: HttpRequest, project: str) -> HttpResponse:
    """Show a folder, or why its node cannot be reached."""
    project_row, person = gated_project(request), require_principal(request).user
    area, path = _area(request.GET.get("area", "")), _path(request.GET.get("path", ""))
    nodes = nodes_with_workspace(project=project_row, person=person, area=area)
    context: dict[str, Any] = {"workspace_area": area, "nodes": node_views(nodes), "path": path}
    try:
        workspace = _workspace(request, request.GET)
        context["node_name"] = workspace.node.name
        context |= _folder(request, workspace, path)
    except (Conflict, RateLimited, Unavailable) as error:
        context["trouble"] = error
        context["has_workspace"] = error.code != "no_workspace"
    return render(request, "web/notebooks/workspace.html", context | _WHERE)


def _folder(request: HttpRequest, workspace: Workspace, path: str) -> dict[str, Any]:
    sort = request.GET.get("sort", "name")
    order = cast(ListOrder, sort if sort in get_args(ListOrder) else "name")
    search, hidden = search_parameter(request, "q"), request.GET.get("hidden") == "1"
    first = request.GET.get("offset", "")
    offset = int(first) if first.isascii() and first.isdigit() and len(first) < 9 else 0
    folder = list_folder(
        workspace,
        path=path,
        order=order,
        search=search,
        hidden=hidden,
        offset=offset,
        limit=SHOWN,
    )
    kept = {"q": search, "hidden": "1" if hidden else ""}
    end = offset + len(folder.entries)
    pages = {"sort": order, **kept}
    return {
        "workspace": workspace,
        "folder": folder,
        "rows": rows_of(workspace, folder),
        "columns": columns_of(workspace, path, order, **kept),
        "trail": trail_of(workspace, path),
        "query": query_of(workspace, path),
        "hidden": hidden,
        "search": search,
        "first": offset + 1,
        "last": end,
        "previous": folder_url(workspace, path, offset=str(max(0, offset - SHOWN)), **pages)
        if offset
        else "",
        "following": folder_url(workspace, path, offset=str(end), **pages)
        if end < folder.total
        else "",
        "most_bytes": MAX_TRANSFER_BYTES,
        "opens_lab": len(folder.nodes) == 1,
    }


@guarded_by(_READ)
@require_safe
def project_workspace_file(request: HttpRequest, project: str) -> HttpResponse:
    """Show a file, without running anything in it."""
    path = _path(request.GET.get("path", ""))
    workspace = _workspace(request, request.GET)
    if not path:
        return redirect(folder_url(workspace))
    name = path.rpartition("/")[2]
    nodes = nodes_with_workspace(
        project=workspace.project, person=workspace.person, area=workspace.area
    )
    context = {
        "name": shown_name(name),
        "workspace": workspace,
        "path": path,
        "query": query_of(workspace, path),
        "trail": trail_of(workspace, path.rpartition("/")[0]),
        "preview": _preview(workspace, path),
        "is_notebook": name.endswith(".ipynb"),
        "opens_lab": len(nodes) == 1,
    }
    return render(request, "web/notebooks/workspace_file.html", context | _WHERE)


def _preview(workspace: Workspace, path: str) -> WorkspacePreview:
    try:
        download = open_download(workspace, path=path, limit_bytes=MOST_PREVIEWED_BYTES)
    except (Conflict, Unavailable) as error:
        return WorkspacePreview(fault=error_text(error))
    except SlipwayError as error:
        if error.status != 413:  # too large
            raise
        return WorkspacePreview(fault="It is too large to show. Download it.")
    if download.is_folder:
        download.pieces.close()
        return WorkspacePreview(fault="It is a folder.")
    try:
        content = b"".join(download.pieces)
    except ConnectionError:
        return WorkspacePreview(fault="It changed while it was read. Reload the page.")
    return preview_file(path.rpartition("/")[2], content)


@guarded_by(_READ)
@require_safe
def project_workspace_download(request: HttpRequest, project: str) -> HttpResponseBase:
    """Download a file, or a folder as a zip. Browsers never show it as a page."""
    path = _path(request.GET.get("path", ""))
    workspace = _workspace(request, request.GET)
    try:
        download = open_download(workspace, path=path, hidden=request.GET.get("hidden") == "1")
    except (Conflict, Unavailable) as error:
        messages.error(request, error_text(error))
        return redirect(folder_url(workspace, path.rpartition("/")[0]))
    return private_download(
        download.pieces,
        name=download.name,
        content_type=download.content_type,
        size_bytes=download.size_bytes,
    )


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_workspace_folder(request: HttpRequest, project: str) -> HttpResponse:
    """Create a folder."""
    workspace, path = _place(request)
    form = NewFolder(sent(request), initial=_initial(workspace, path))
    done = submit_form(request, form, lambda data: make_folder(workspace, path=data["target"]))
    if done:
        messages.success(request, f"Created the folder {shown_name(done.result.name)}.")
        return redirect(folder_url(workspace, path))
    return _form_page(request, workspace, form, path, "New folder", "Create folder")


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_workspace_move(request: HttpRequest, project: str) -> HttpResponse:
    """Rename or move a file or folder."""
    workspace, path = _place(request)
    above, _, name = path.rpartition("/")
    to_area = _area(request.GET.get("to_area", workspace.area))
    to = _path(request.GET.get("to", above))
    initial = {"target": f"{to}/{name}".lstrip("/"), "target_area": to_area}
    form = MoveEntry(sent(request), initial=_initial(workspace, path) | initial)
    done = submit_form(
        request,
        form,
        lambda data: move_entry(
            workspace,
            path=path,
            target=data["target"],
            target_area=_area(data["target_area"]),
            replace=data["replace"],
        ),
    )
    if done:
        area = _area(form.cleaned_data["target_area"])
        is_across = area != workspace.area
        where = f" in the {area} folder" if is_across else ""
        messages.success(request, f"It is {shown_name(done.result.path)}{where} now.")
        moved = replace(workspace, area=area)
        return redirect(folder_url(moved, done.result.path.rpartition("/")[0]))
    title = f"Rename or move {shown_name(name)}"
    picker = _folder_picker(workspace, path, to_area, to)
    return _form_page(request, workspace, form, above, title, "Rename or move", picker=picker)


def _folder_picker(workspace: Workspace, path: str, area: WorkspaceArea, to: str) -> FolderPicker:
    try:
        folder = list_folder(replace(workspace, area=area), path=to, limit=MOST_LISTED)
    except (Conflict, InvalidInput, NotFound, RateLimited, Unavailable) as error:
        return FolderPicker(picker_areas(workspace, path), fault=error_text(error))
    return picker_of(workspace, path, area, folder)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_workspace_delete(request: HttpRequest, project: str) -> HttpResponse:
    """Ask, then delete a file or folder."""
    workspace, path = _place(request)
    name, above = shown_name(path.rpartition("/")[2]), path.rpartition("/")[0]
    if request.method == "POST":
        if one_click(request, lambda: _deleted(workspace, path)):
            messages.success(request, f"{name} deleted.")
        return redirect(folder_url(workspace, above))
    whose = "you alone use" if workspace.area == "personal" else "all members of the project share"
    question = Confirmation(
        title=f"Delete {name}?",
        effects=(
            f"It is in the folder that {whose}, on the node {workspace.node.name}.",
            "A folder is deleted with everything in it. You cannot undo this.",
            "Saved versions under Notebook files remain.",
        ),
        button="Delete",
        back=folder_url(workspace, above),
        **_WHERE,
    )
    return show_confirmation(request, question, PlaceForm(initial=_initial(workspace, path)))


def _deleted(workspace: Workspace, path: str) -> bool:
    delete_entry(workspace, path=path)
    return True


@guarded_by(_OPEN)
@require_POST
def project_workspace_lab(request: HttpRequest, project: str) -> HttpResponse:
    """Open a file in the person's server, which is started, or launched by the form."""
    workspace, path = _place(request)
    by, project_row = require_principal(request).user, workspace.project
    done = one_click(request, lambda: resume_server(project=project_row, by=by))
    if not done:
        return redirect(folder_url(workspace, path.rpartition("/")[0]))
    if done.result is None:
        return redirect(address_of(project_row, "notebook_new"))
    in_lab = f"personal/{path}" if workspace.area == "personal" else path
    return redirect(opening_page(done.result, path=in_lab))


def _place(request: HttpRequest) -> tuple[Workspace, str]:
    """Return the workspace and path that a form, or the link to it, names."""
    values = request.POST if request.method == "POST" else request.GET
    return _workspace(request, values), _path(values.get("path", ""))


def _initial(workspace: Workspace, path: str) -> dict[str, str]:
    return {"area": workspace.area, "node": workspace.node.name, "path": path}


def _form_page(
    request: HttpRequest,
    workspace: Workspace,
    form: forms.Form,
    folder: str,
    title: str,
    button: str,
    picker: FolderPicker | None = None,
) -> HttpResponse:
    context = {
        "picker": picker,
        "form": form,
        "title": title,
        "button": button,
        "back": folder_url(workspace, folder),
    }
    return render(
        request, "web/notebooks/workspace_form.html", context | _WHERE, status=status_of(form)
    )
