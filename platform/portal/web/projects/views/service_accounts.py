"""Service accounts of a project: the list, the page of one, and its tokens."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import ApiToken, ServiceAccount
from portal.accounts.principal import require_principal
from portal.accounts.service_account_gates import ServiceAccountRole, gated_account
from portal.accounts.services import service_accounts as services
from portal.accounts.services.tokens import NewToken
from portal.core import clock
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.pipelines.models import ProjectSchedule
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import listing, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.base.urls_for import address_of
from portal.web.projects.service_account_forms import (
    EditServiceAccount,
    NewServiceAccount,
    NewServiceToken,
    preset_text,
)
from slipway.schemas.accounts import Role, Scope

_WHERE = {"area": "projects", "section": "service_accounts"}
_SEE = ServiceAccountRole(Role.VIEWER, Scope.PROJECTS_READ)
_CHANGE = ServiceAccountRole(Role.OWNER, Scope.MEMBERS_WRITE)
_STOP = ServiceAccountRole(Role.MAINTAINER, Scope.MEMBERS_WRITE)
_TOKENS = ServiceAccountRole(Role.MAINTAINER, Scope.TOKENS_WRITE)
_SHOWN = 50


@guarded_by(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ))
@require_safe
def project_service_accounts(request: HttpRequest, project: str) -> HttpResponse:
    """List the service accounts, newest first."""
    accounts = ServiceAccount.objects.of_project(gated_project(request)).with_use()
    accounts = accounts.matching(search_parameter(request, "q"))
    shown = listing(request, accounts, sorts={"name": "name"})
    context = {
        "listing": shown,
        "region": "accounts",
        "rows": shown.page.items,
        "may_create": gated_role(request).at_least(Role.OWNER),
    }
    return render(request, "web/service_accounts/list.html", context | _WHERE)


@guarded_by(ProjectRole(Role.OWNER, Scope.MEMBERS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_service_account_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form of a new service account, create it."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewServiceAccount(sent(request))
    done = submit_form(
        request,
        form,
        lambda data: services.create_service_account(project=project_row, by=by, **data),
    )
    if done:
        messages.success(request, f"{done.result.name} created. It needs a token or a schedule.")
        return redirect(address_of(project_row, "service_account", done.result.name))
    context = {"form": form} | _WHERE
    return render(request, "web/service_accounts/form.html", context, status=status_of(form))


@guarded_by(_SEE)
@require_safe
def project_service_account(request: HttpRequest, project: str, account: str) -> HttpResponse:
    """Show a service account: its role, its tokens, and the schedules for which it pays."""
    return _page(request)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_service_account_edit(request: HttpRequest, project: str, account: str) -> HttpResponse:
    """Show the form of a service account, change it."""
    row, by = gated_account(request), require_principal(request).user
    initial = {"role": row.role.value, "description": row.description}
    form = EditServiceAccount(sent(request), initial=initial)
    done = submit_form(
        request, form, lambda data: services.change_service_account(account=row, by=by, **data)
    )
    if done:
        messages.success(request, f"{row.name} saved.")
        return _back(request, row)
    context = {"form": form, "account": row} | _WHERE
    return render(request, "web/service_accounts/form.html", context, status=status_of(form))


@guarded_by(_STOP)
@require_http_methods(["GET", "HEAD", "POST"])
def project_service_account_disable(
    request: HttpRequest, project: str, account: str
) -> HttpResponse:
    """Ask, then disable a service account."""
    row, by = gated_account(request), require_principal(request).user
    if request.method == "POST":
        if one_click(request, lambda: services.disable_service_account(account=row, by=by)):
            messages.success(request, f"{row.name} is disabled.")
        return _back(request, row)
    question = Confirmation(
        title=f"Disable {row.name}?",
        effects=(
            "Its tokens stop at once, and so do the jobs' own when they call Slipway.",
            "Its schedules pause. An owner can enable it again.",
        ),
        button="Disable the account",
        back=address_of(gated_project(request), "service_account", row.name),
        **_WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(_CHANGE)
@require_POST
def project_service_account_enable(
    request: HttpRequest, project: str, account: str
) -> HttpResponse:
    """Enable a service account."""
    row = gated_account(request)
    if one_click(request, lambda: services.enable_service_account(account=row)):
        messages.success(request, f"{row.name} is enabled. Resume its schedules where you need it.")
    return _back(request, row)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_service_account_delete(
    request: HttpRequest, project: str, account: str
) -> HttpResponse:
    """Ask, then delete a service account."""
    row, by = gated_account(request), require_principal(request).user
    place = gated_project(request)
    if request.method == "POST":
        if one_click(request, lambda: services.delete_service_account(account=row, by=by)):
            messages.success(request, f"{row.name} is deleted.")
        return redirect(address_of(place, "service_accounts"))
    question = Confirmation(
        title=f"Delete {row.name}?",
        effects=(
            "Its tokens end at once, and its schedules pause.",
            "What it has made is retained, under its name. The name cannot be used again.",
        ),
        button="Delete the account",
        back=address_of(place, "service_account", row.name),
        **_WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(_TOKENS)
@require_POST
def project_service_token_new(request: HttpRequest, project: str, account: str) -> HttpResponse:
    """Create a token of a service account. Only this response shows it."""
    row, by = gated_account(request), require_principal(request)
    form = NewServiceToken(request.POST)
    done = submit_form(
        request, form, lambda data: services.create_service_token(account=row, by=by, **data)
    )
    return _page(request, made=done.result) if done else _page(request, form)


@guarded_by(_TOKENS)
@require_http_methods(["GET", "HEAD", "POST"])
def project_service_token_revoke(
    request: HttpRequest, project: str, account: str, token_id: str
) -> HttpResponse:
    """Ask, then revoke a token of a service account."""
    row = gated_account(request)
    token = ApiToken.objects.filter(user=row.user, pk=token_id).first()
    if token is None:
        raise NotFound
    if request.method == "POST":
        services.revoke_service_token(account=row, token_id=token_id)
        messages.success(request, f"The token “{token.name}” no longer works.")
        return _back(request, row)
    question = Confirmation(
        title=f"Revoke the token “{token.name}” of {row.name}?",
        effects=(
            f"Programs that use {token.prefix}… are refused from their next request on.",
            "You cannot restore a revoked token; create a new one instead.",
        ),
        button="Revoke the token",
        back=address_of(gated_project(request), "service_account", row.name),
        **_WHERE,
    )
    return show_confirmation(request, question)


def _page(
    request: HttpRequest, form: NewServiceToken | None = None, made: NewToken | None = None
) -> HttpResponse:
    project, row, role = gated_project(request), gated_account(request), gated_role(request)
    schedules = ProjectSchedule.objects.of_project(project).filter(owner=row.user)
    context: dict[str, Any] = {
        "account": row,
        "schedules": shortlist(schedules.order_by("-pk"), _SHOWN),
        "may_change": role.at_least(Role.OWNER),
        "may_use": role.at_least(Role.MAINTAINER),
        "made": made,
    }
    if role.at_least(Role.MAINTAINER):
        rows = ApiToken.objects.filter(user=row.user).select_related("created_by")
        tokens = shortlist(rows.order_by("-pk"), _SHOWN)
        context |= {
            "tokens": [(token, preset_text(token.scopes)) for token in tokens],
            "tokens_left_out": tokens.left_out,
            "form": form or NewServiceToken(),
            "now": clock.now(),
        }
    status = status_of(form) if form is not None else 200
    return render(request, "web/service_accounts/account.html", context | _WHERE, status=status)


def _back(request: HttpRequest, account: ServiceAccount) -> HttpResponse:
    return redirect(address_of(gated_project(request), "service_account", account.name))
