"""Event streams that notify open pages of changes."""

from django.http import HttpRequest
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, SignedIn, TeamRole, gated_project, gated_team
from portal.accounts.models.tenancy import Group
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden
from portal.core.policy import guarded_by
from portal.core.streams import EventStream
from portal.web.streams.auth import listener_of
from portal.web.streams.sse import event_stream
from slipway.schemas.accounts import Role, Scope

_MOST_DIGITS = 18


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_safe
def events(request: HttpRequest) -> EventStream:
    """Stream events for the person: projects, tokens, sessions."""
    return _stream(request, None)


@guarded_by(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True))
@require_safe
def project_events(request: HttpRequest, project: str) -> EventStream:
    """Stream events for the person and one project."""
    return _stream(request, gated_project(request))


@guarded_by(TeamRole(Role.VIEWER, Scope.PROJECTS_READ))
@require_safe
def team_events(request: HttpRequest, team: str) -> EventStream:
    """Stream events for the person and one team."""
    return _stream(request, gated_team(request))


def _stream(request: HttpRequest, group: Group | None) -> EventStream:
    principal = require_principal(request)
    if principal.token is not None or not request.session.session_key:
        raise Forbidden(
            "Live updates are for signed-in browsers.", next_step="Use the API instead."
        )
    listener = listener_of(principal.user, request.session.session_key, group)
    return EventStream(event_stream(listener, _resumed_from(request)))


def _resumed_from(request: HttpRequest) -> int:
    """Return the last event that the page knows: received, or newest when it was rendered."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("since", "")
    known = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if known else 0
