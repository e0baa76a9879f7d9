"""Wire schemas of notifications: what needs a person now."""

from datetime import datetime
from enum import StrEnum

from slipway.schemas.base import AnswerSchema


class NotificationKind(StrEnum):
    """Cause of a notification."""

    ALERT = "alert"
    APPROVAL = "approval"
    APPROVED = "approved"
    BUDGET = "budget"
    ENDPOINT = "endpoint"
    PIPELINE = "pipeline"
    SCHEDULE = "schedule"
    WORKLOAD = "workload"


class NotificationOut(AnswerSchema):
    """An open cause. `waits_for_you` is true if the caller is among those who can end it.

    `id` is the id of the alert, request, budget, endpoint, schedule, step or run of a pipeline, or
    workload. `path` is the page where it is solved, relative to the address of the portal.
    """

    id: str
    kind: NotificationKind
    project: str | None
    title: str
    reason: str
    next_step: str
    path: str
    since: datetime
    waits_for_you: bool


class NotificationsOut(AnswerSchema):
    """Open notifications: those that wait for the caller first, then the newest.

    `left_out` counts further ones beyond the limit of each kind. `missing_scopes` are scopes that
    the caller's token lacks, so that kinds are missing.
    """

    items: list[NotificationOut]
    left_out: int
    missing_scopes: list[str]
