"""The README of a project: edit, preview, save."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.accounts.services.readmes import readme_of, save_readme
from portal.core.policy import guarded_by
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.urls_for import address_of
from portal.web.projects.forms import ReadmeForm
from slipway.schemas.accounts import Role, Scope


@guarded_by(ProjectRole(Role.CONTRIBUTOR, Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_readme(request: HttpRequest, project: str) -> HttpResponse:
    """Edit the README. A text that was edited from an older version is kept, and not saved."""
    project_row, by = gated_project(request), require_principal(request).user
    current = readme_of(project_row)
    version = current.version if current else 0
    initial = {"text": current.text if current else "", "version": version}
    form = ReadmeForm(sent(request), initial=initial)
    preview = "preview" in request.POST
    done = None
    if not preview:
        done = submit_form(
            request, form, lambda data: save_readme(project=project_row, by=by, **data)
        )
    if done:
        messages.success(request, f"README saved as version {done.result.version}.")
        return redirect(address_of(project_row))
    changed = form.is_bound and form.data.get("version") != str(version)
    context = {
        "project": project_row,
        "form": form,
        "current": current,
        "version": version,
        "changed": changed and current is not None and not preview,
        "preview": str(form["text"].value() or "") if preview else None,
        "area": "projects",
        "section": "overview",
    }
    status = 200 if preview else status_of(form)
    return render(request, "web/projects/readme.html", context, status=status)
