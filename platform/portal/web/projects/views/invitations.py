"""Following an invitation's link."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.authentication import SESSION_INVITATION
from portal.accounts.gates import SignedIn
from portal.accounts.principal import principal_of, require_principal
from portal.accounts.services.invitations import accept, find_open
from portal.core.errors import NotFound
from portal.core.policy import Public, guarded_by
from portal.web.base.urls_for import address_of
from slipway.schemas.accounts import Scope


@guarded_by(Public("the secret in the address is the proof"))
@require_safe
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show what the link leads to, and how to accept it."""
    try:
        invitation_row = find_open(secret)
    except NotFound:
        return render(request, "web/invitation_invalid.html", status=404)
    principal = principal_of(request)
    request.session[SESSION_INVITATION] = secret
    context = {
        "invitation": invitation_row,
        "secret": secret,
        "person": principal.user if principal else None,
        "is_mine": principal is not None and principal.user.email == invitation_row.email,
    }
    return render(request, "web/invitation.html", context)


@guarded_by(SignedIn(Scope.PROJECTS_WRITE))
@require_POST
def invitation_accept(request: HttpRequest, secret: str) -> HttpResponse:
    """Become a member and go there."""
    accepted = accept(secret=secret, by=require_principal(request).user)
    request.session.pop(SESSION_INVITATION, None)
    messages.success(request, f"Welcome to {accepted.group.name}.")
    return redirect(address_of(accepted.group))
