"""Notifications about approval requests."""

from django.db.models import Q, QuerySet

from portal.accounts.models import Project
from portal.accounts.models.service_accounts import accounts_operated_by
from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.registry.catalog import names_of_versions
from portal.registry.models import PromotionRequest
from slipway.schemas.accounts import Role
from slipway.schemas.notifications import NotificationKind
from slipway.schemas.registry import RequestState


def approval_notifications(audience: Audience) -> Listed:
    """Return the requests that the reader can decide, and the reader's approved ones."""
    requests = _requests_for(audience)
    names = names_of_versions(_key(request) for request in requests)

    def notification(request: PromotionRequest) -> Notification | None:
        known = names.get(_key(request), ())
        line = request.record.line
        if not known:  # the model or version was deleted
            return None
        name = line.name if line.name in known else known[0]
        return _notification(request, audience.projects[line.project_id], name)

    return newest_of(requests, notification)


def _requests_for(audience: Audience) -> QuerySet[PromotionRequest]:
    user = audience.principal.user
    roles = audience.roles
    maintained = [pk for pk, role in roles.items() if role.at_least(Role.MAINTAINER)]
    promoted = [pk for pk, role in roles.items() if role.at_least(Role.CONTRIBUTOR)]
    used = accounts_operated_by(user)
    by_others = ~Q(requested_by=user) & ~Q(requested_by__in=used)
    author_is_another = ~Q(record__author=user) & ~Q(record__author__in=used)
    of_others = by_others & (Q(record__author=None) | author_is_another)
    to_decide = Q(state=RequestState.OPEN, record__line__project__in=maintained) & of_others
    to_promote = Q(
        state=RequestState.APPROVED, requested_by=user, record__line__project__in=promoted
    )
    return PromotionRequest.objects.complete().filter(to_decide | to_promote)


def _key(request: PromotionRequest) -> tuple[str, int, int]:
    line = request.record.line
    return line.project_id, line.born_ms, request.record.number


def _notification(request: PromotionRequest, project: Project, model: str) -> Notification:
    is_open = request.state == RequestState.OPEN
    version = f"{model} version {request.record.number}"
    target = f"{request.kind} {request.target}"
    if is_open:
        title = f"Approve {version} for {target}?"
        reason = f"{request.requested_by.display_name} requests approval."
    else:
        decider = request.decided_by
        title = f"{version} is approved for {target}"
        reason = f"Approved by {decider.display_name if decider else 'a maintainer'}."
    note = request.note if is_open else request.decision_note
    return Notification(
        id=request.pk,
        kind=NotificationKind.APPROVAL if is_open else NotificationKind.APPROVED,
        project=project,
        title=title,
        reason=f"{reason} {note}".strip(),
        next_step="Approve or reject it." if is_open else "Promote it.",
        route="project_model_promote",
        arguments=(project.slug, model, request.record.number),
        query=((request.kind, request.target),),
        since=request.created_at if is_open else request.decided_at or request.created_at,
        waits_for_you=True,
    )
