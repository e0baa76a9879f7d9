"""One's own account: name, sessions."""

from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import SignedIn
from portal.accounts.models import Membership
from portal.accounts.principal import require_principal
from portal.accounts.services.people import end_session, rename_self, sign_out_everywhere
from portal.compute.services.pool_accounts import accounts_of
from portal.core import clock
from portal.core.policy import guarded_by
from portal.web.account.browsers import browser_of
from portal.web.account.forms.settings import Profile
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.shortlist import shortlist

MOST_SESSIONS = 100


@guarded_by(SignedIn())
@require_safe
def settings(request: HttpRequest) -> HttpResponse:
    """The settings begin with the profile."""
    return redirect("profile")


@guarded_by(SignedIn())
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Show the person's profile, and change the name."""
    user = require_principal(request).user
    form = Profile(sent(request), initial={"name": user.name})
    if submit_form(request, form, lambda data: rename_self(user=user, name=data["name"])):
        messages.success(request, "Saved.")
        return redirect("profile")
    memberships = Membership.objects.filter(user=user)
    context = {
        "form": form,
        "user": user,
        "project_count": require_principal(request).projects().live().count(),
        "team_count": memberships.filter(team__isnull=False).count(),
        "pool_accounts": accounts_of(require_principal(request)),
        "area": "account",
        "section": "profile",
    }
    return render(request, "web/settings/profile.html", context, status=status_of(form))


@guarded_by(SignedIn())
@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """List the person's active sessions."""
    user = require_principal(request).user
    alive = Session.objects.filter(expire_date__gt=clock.now()).values("session_key")
    sessions = UserSession.objects.filter(user=user, session_key__in=alive).order_by("-created_at")
    this = request.session.session_key
    newest = shortlist(sessions, MOST_SESSIONS)
    rows = [
        (
            session,
            browser_of(session.user_agent),
            session.session_key == this,
        )
        for session in newest
    ]
    context = {
        "rows": rows,
        "left_out": newest.left_out,
        "area": "account",
        "section": "sessions",
    }
    return render(request, "web/settings/sessions.html", context)


@guarded_by(SignedIn())
@require_POST
def session_end(request: HttpRequest, session: int) -> HttpResponse:
    """Sign one browser out."""
    end_session(user=require_principal(request).user, session_id=session)
    messages.success(request, "Browser signed out.")
    return redirect("sessions")


@guarded_by(SignedIn())
@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    """Sign every browser out, or every other one."""
    user = require_principal(request).user
    keep = request.session.session_key if request.POST.get("keep") == "this" else None
    ended = sign_out_everywhere(user=user, keep_session=keep)
    if keep is None:
        return redirect("account_login")
    messages.success(request, f"Signed out of {ended} other browser{'' if ended == 1 else 's'}.")
    return redirect("sessions")
