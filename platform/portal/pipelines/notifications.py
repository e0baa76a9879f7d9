"""Notifications about schedules and pipelines that do not go on, and steps to approve."""

from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.core import clock
from portal.pipelines.models import PipelineRun, ProjectSchedule, StepRun
from slipway.schemas.accounts import Role
from slipway.schemas.notifications import NotificationKind
from slipway.schemas.pipelines import PipelineRunState, StepState
from slipway.schemas.schedules import ScheduleState

# A failed run that nobody resumes or repeats is a notification this long.
FAILED_FOR = timedelta(days=7)
_APPROVERS = (Role.CONTRIBUTOR, Role.MAINTAINER, Role.OWNER)


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


def step_notifications(audience: Audience) -> Listed:
    """Return the steps that wait for approval and that the reader can decide about."""

    def notification(step: StepRun) -> Notification:
        project = audience.projects[step.run.project_id]
        return Notification(
            id=step.pk,
            kind=NotificationKind.PIPELINE,
            project=project,
            title=f"Approve step {step.step} of the pipeline {step.run.name}?",
            reason=step.explanation,
            next_step="Approve or decline it.",
            route="project_pipeline_run",
            arguments=(project.slug, step.run_id),
            since=step.started_at or step.created_at,
            waits_for_you=True,
        )

    return newest_of(_steps_for(audience), notification)


def _steps_for(audience: Audience) -> QuerySet[StepRun]:
    may_decide = Q(pk__in=[])
    for role in _APPROVERS:
        projects = [pk for pk, held in audience.roles.items() if held.at_least(role)]
        may_decide |= Q(value=role.value, run__project__in=projects)
    steps = StepRun.objects.filter(
        may_decide,
        kind="approval",
        state=StepState.APPROVAL,
        run__state=PipelineRunState.RUNNING,
    )
    names = ("step", "explanation", "started_at", "created_at", "run__name", "run__project_id")
    return steps.select_related("run").only(*names)


def failed_run_notifications(audience: Audience) -> Listed:
    """Return the reader's own failed runs, unless their pipeline was started again since then."""

    def notification(run: PipelineRun) -> Notification:
        project = audience.projects[run.project_id]
        return Notification(
            id=run.pk,
            kind=NotificationKind.PIPELINE,
            project=project,
            title=f"The pipeline {run.name} failed",
            reason=run.explanation,
            next_step=run.next_step or "Open the run, fix the cause, and resume it.",
            route="project_pipeline_run",
            arguments=(project.slug, run.pk),
            since=run.ended_at or run.created_at,
            waits_for_you=True,
        )

    later = PipelineRun.objects.filter(
        project=OuterRef("project"), name=OuterRef("name"), pk__gt=OuterRef("pk")
    )
    runs = PipelineRun.objects.filter(
        ~Exists(later),
        project__in=list(audience.projects),
        owner=audience.principal.user,
        state=PipelineRunState.FAILED,
        ended_at__gt=clock.now() - FAILED_FOR,
    )
    return newest_of(runs.defer("spec", "parameters", "git"), notification)
