"""Requests of people about files of a workspace, which the agent of its node answers."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.compute.models import Node
from portal.core import clock
from portal.core.models import IdField, Row
from portal.core.notify import notify_listeners

# A row, and what was transferred for it, is deleted after this time at the latest.
TRANSFERS_WITHIN = timedelta(hours=1)
_STATES = ("receiving", "waiting", "claimed", "streaming", "ended")


class WorkspaceRequestQuerySet(models.QuerySet["WorkspaceRequest"]):
    """Queries of requests. Each change of the state is one guarded UPDATE."""

    def unfinished(self) -> "WorkspaceRequestQuerySet":
        """Requests without an answer that somebody may still wait for."""
        return self.exclude(state="ended").filter(expires_at__gt=clock.now())

    def waiting_at(self, node: Node) -> "WorkspaceRequestQuerySet":
        """Requests that the agent of a node should claim."""
        return self.unfinished().filter(node=node, state="waiting").order_by("pk")

    def move(self, pk: str, *, states: tuple[str, ...], target: str, **changes: object) -> bool:
        """Change the state of an unfinished request. Returns False if it is in none of `states`."""
        rows = self.unfinished().filter(pk=pk, state__in=states)
        moved = bool(rows.update(state=target, **changes))
        if moved:
            notify_listeners()
        return moved


class WorkspaceRequest(Row):
    """One operation in a folder of a node: `receiving → waiting → claimed → streaming → ended`.

    `request` is a `FileRequest` without its id, `answer` a `FileAnswer`. `receiving` has not all
    bytes of an upload yet. `streaming` is a download whose bytes arrive. The agent does each at
    most once, because it claims it first. Bytes are in the log store, below `transfer_key`.
    """

    id = IdField("wfr")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    request = models.JSONField()
    answer = models.JSONField(null=True, blank=True)
    state = models.CharField(max_length=10)
    expires_at = models.DateTimeField()

    objects: ClassVar[WorkspaceRequestQuerySet] = WorkspaceRequestQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state__in=_STATES), name="workspace_request_known_state"
            ),
        ]

    @property
    def transfer_key(self) -> str:
        """Key of the bytes that this request transfers."""
        return f"workspace-transfers/{self.pk}"


def transfer_deadline() -> datetime:
    """Return when a request that is made now expires."""
    return clock.now() + TRANSFERS_WITHIN
