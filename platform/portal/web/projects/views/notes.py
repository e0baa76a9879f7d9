"""Notes about a job, a sweep, a notebook server or an endpoint: edit, preview, save."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from portal.accounts.gates import gated_project
from portal.accounts.noted import NotedRole
from portal.accounts.principal import require_principal
from portal.accounts.services.notes import note_of, save_note
from portal.core.policy import guarded_by
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.projects.forms import NoteForm
from slipway.schemas.accounts import Role, Scope


@guarded_by(NotedRole(Role.CONTRIBUTOR, Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_note(request: HttpRequest, project: str, kind: str, target: str) -> HttpResponse:
    """Edit notes. A text that was edited from an older version is kept, and not saved."""
    project_row, noted = gated_project(request), NotedRole.stored(request)
    by = require_principal(request).user
    page = reverse(noted.kind.page, args=[project_row.slug, noted.path])
    current = note_of(project_row, noted.kind.name, noted.id)
    version = current.version if current else 0
    initial = {"text": current.text if current else "", "version": version}
    form = NoteForm(sent(request), initial=initial)
    preview = "preview" in request.POST
    done = None
    if not preview:
        done = submit_form(
            request, form, lambda data: save_note(project=project_row, noted=noted, by=by, **data)
        )
    if done:
        messages.success(request, "Notes saved.")
        return redirect(page)
    changed = form.is_bound and form.data.get("version") != str(version)
    context = {
        "noted": noted,
        "page": page,
        "form": form,
        "current": current,
        "version": version,
        "changed": changed and current is not None and not preview,
        "preview": str(form["text"].value() or "") if preview else None,
        "area": "projects",
        "section": noted.kind.section,
    }
    status = 200 if preview else status_of(form)
    return render(request, "web/projects/note.html", context, status=status)
