"""Notifications about running work that seems to hang."""

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of
from portal.workloads.silence import NEXT_STEP, silence_text
from slipway.schemas.notifications import NotificationKind
from slipway.schemas.workloads import WorkloadState


def silence_notifications(audience: Audience) -> Listed:
    """Return the silent workloads in the reader's projects. They wait for their author."""

    def notification(workload: Workload) -> Notification:
        project = audience.projects[workload.project_id]
        kind = kind_of(workload.kind)
        page = kind.page_of(workload.pk)
        return Notification(
            id=workload.pk,
            kind=NotificationKind.WORKLOAD,
            project=project,
            title=f"The {kind.noun} {workload.name} may hang",
            reason=silence_text(workload),
            next_step=NEXT_STEP,
            route=page.name,
            arguments=(project.slug, *page.args),
            since=workload.silent_since or workload.created_at,
            waits_for_you=workload.submitted_by_id == audience.principal.user.pk,
        )

    silent = Workload.objects.filter(
        project__in=list(audience.projects),
        state=WorkloadState.RUNNING,
        silent_since__isnull=False,
    )
    return newest_of(silent, notification)
