"""Following an invitation's link."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.accounts.services.invitations import find_open
from portal.accounts.signin import SESSION_INVITATION
from portal.core.errors import NotFound
from portal.core.policy import Public, guarded_by
from portal.web.views.failures import error_page


@guarded_by(Public("the secret in the address is the proof"))
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show what the link leads to, and how to accept it."""
    try:
        found = find_open(secret)
    except NotFound as error:
        return error_page(request, error)
    request.session[SESSION_INVITATION] = secret
    return render(request, "web/invitation.html", {"invitation": found})
