"""Open notifications of the caller."""

from django.http import HttpRequest
from ninja import Router

from portal.accounts.gates import ProjectRole, SignedIn, gated_project
from portal.accounts.notifications import Notification, Notifications, notifications_for
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.notifications import NotificationOut, NotificationsOut

router = Router(tags=["Account"])


@router.get(
    "/notifications",
    auth=gate(SignedIn(Scope.PROJECTS_READ, confined=True)),
    response=NotificationsOut,
)
def list_notifications(request: HttpRequest) -> NotificationsOut:
    """List what needs a person now: alerts, approval requests, budgets, failed endpoints."""
    return _answer(notifications_for(require_principal(request)))


@router.get(
    "/projects/{project}/notifications",
    auth=gate(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ)),
    response=NotificationsOut,
)
def list_project_notifications(request: HttpRequest, project: str) -> NotificationsOut:
    """List what needs a person now in one project."""
    return _answer(notifications_for(require_principal(request), gated_project(request)))


def _answer(shown: Notifications) -> NotificationsOut:
    return NotificationsOut(
        items=[_described(item) for item in shown.items],
        left_out=shown.left_out,
        missing_scopes=[scope.value for scope in shown.missing],
    )


def _described(item: Notification) -> NotificationOut:
    return NotificationOut(
        id=item.id,
        kind=item.kind,
        project=item.project.slug if item.project else None,
        title=item.title,
        reason=item.reason,
        next_step=item.next_step,
        path=item.path,
        since=item.since,
        waits_for_you=item.waits_for_you,
    )
