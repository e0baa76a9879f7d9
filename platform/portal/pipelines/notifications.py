"""Notifications about schedules that have paused themselves or whose last run was refused."""

from django.db.models import Q

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.pipelines.models import ProjectSchedule
from slipway.schemas.notifications import NotificationKind
from slipway.schemas.schedules import ScheduleState


def schedule_notifications(audience: Audience) -> Listed:
    """Return the schedules of the reader's projects that do not do what they should."""

    def notification(schedule: ProjectSchedule) -> Notification:
        is_paused = schedule.status == ScheduleState.PAUSED
        return Notification(
            id=schedule.pk,
            kind=NotificationKind.SCHEDULE,
            project=schedule.project,
            title=f"{schedule.name}: {'paused' if is_paused else 'run refused'}",
            reason=schedule.explanation,
            next_step=schedule.next_step or "Open the schedule to see its runs.",
            route="project_schedule",
            arguments=(schedule.project.slug, schedule.name),
            since=schedule.explained_at or schedule.created_at,
            waits_for_you=schedule.owner_id == audience.principal.user.pk,
        )

    by_itself = Q(state=ScheduleState.PAUSED, paused_by__isnull=True)
    is_refused = Q(state=ScheduleState.ACTIVE, refusals__gt=0)
    schedules = ProjectSchedule.objects.filter(
        by_itself | is_refused, deleted_at__isnull=True, project__in=list(audience.projects)
    )
    return newest_of(schedules.select_related("project"), notification)
