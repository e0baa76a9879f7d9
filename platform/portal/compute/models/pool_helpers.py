"""Helpers of people: programs that run the commands of a pool's system under a person's own login.

A pool whose setting `helper` is on has no other way to its engine. States change in
`portal.compute.services.pool_helpers` alone.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.compute.lifecycle import HelperRequestState
from portal.compute.models.pools import Pool
from portal.core.models import IdField, Row


class PoolHelper(Row):
    """The helpers of one person in one pool. They are interchangeable.

    `seen_at` is when one of them last asked for work. `version` grows with each request that
    waits, so that a helper can wait for a change.
    """

    id = IdField("plhe")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="helpers")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    seen_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=0)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["pool", "user"], name="pool_helper_once"),
        ]


class HelperRequest(Row):
    """A request to the helper of a person: one operation on that person's own jobs.

    `subject` is the job: its name to submit, its number to cancel, empty for the reports on all.
    The same operation on the same subject is the same row. `arguments` are for the helper, and
    `script` is a batch script, encrypted because it holds join tokens, and gone with the answer.
    `answer` is the last useful answer, kept while the request waits again, and `problem` is why
    the latest one was not useful.
    """

    id = IdField("hreq")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    operation = models.CharField(max_length=16)
    subject = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=16, default=HelperRequestState.WAITING)
    arguments = models.JSONField(default=dict)
    script = models.BinaryField(default=bytes)
    answer = models.JSONField(null=True, blank=True)
    problem = models.CharField(max_length=500, blank=True)
    taken_by = models.CharField(max_length=64, blank=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["pool", "user", "operation", "subject"], name="helper_request_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in HelperRequestState]),
                name="helper_request_known_state",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["pool", "user", "state"], name="helper_request_state"),
        ]
