"""Project secrets: created, replaced, deleted, but never shown."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import ProjectSecret
from portal.accounts.principal import require_principal
from portal.accounts.services.secrets import delete_secret, write_secret
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.web.account.forms.settings import WriteSecret
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import listing, search_parameter
from portal.web.base.urls_for import address_of
from slipway.schemas.accounts import Role, Scope


@guarded_by(ProjectRole(Role.CONTRIBUTOR, Scope.PROJECTS_READ))
@require_safe
def project_secrets(request: HttpRequest, project: str) -> HttpResponse:
    """List names and dates."""
    secrets_queryset = ProjectSecret.objects.filter(project=gated_project(request))
    text = search_parameter(request, "q")
    secrets_queryset = secrets_queryset.filter(name__icontains=text) if text else secrets_queryset
    shown = listing(
        request,
        secrets_queryset.select_related("updated_by").defer("ciphertext"),
        sorts={"name": "name"},
    )
    context = {
        "listing": shown,
        "region": "secrets",
        "rows": shown.page.items,
        "may_write": gated_role(request).at_least(Role.MAINTAINER),
        "area": "projects",
        "section": "secrets",
    }
    return render(request, "web/secrets/list.html", context)


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.SECRETS_WRITE))
@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def project_secret_write(request: HttpRequest, project: str) -> HttpResponse:
    """Write a secret, or replace the one of that name."""
    project_row, by = gated_project(request), require_principal(request).user
    form = WriteSecret(sent(request), initial={"name": request.GET.get("name", "")[:64]})
    done = submit_form(request, form, lambda data: write_secret(project=project_row, by=by, **data))
    if done:
        messages.success(request, f"{done.result.name} saved.")
        return redirect(address_of(project_row, "secrets"))
    context = {"form": form, "area": "projects", "section": "secrets"}
    return render(request, "web/secrets/write.html", context, status=status_of(form))


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.SECRETS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_secret_delete(request: HttpRequest, project: str, name: str) -> HttpResponse:
    """Ask, then delete a secret."""
    project_row = gated_project(request)
    if request.method == "POST":
        delete_secret(project=project_row, name=name)
        messages.success(request, f"{name} deleted.")
        return redirect(address_of(project_row, "secrets"))
    if not ProjectSecret.objects.filter(project=project_row, name=name).exists():
        raise NotFound
    question = Confirmation(
        title=f"Delete the secret {name}?",
        effects=(
            f"Code in {project_row.name} that starts from now on no longer has {name}.",
            "You cannot restore the value; save a copy elsewhere if you need it.",
        ),
        button="Delete the secret",
        back=address_of(project_row, "secrets"),
        area="projects",
        section="secrets",
    )
    return show_confirmation(request, question)
