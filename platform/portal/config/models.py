"""Tables of the process layer: the leader, and the due time of each periodic task."""

from django.db import models


class Leadership(models.Model):
    """A lock that at most one process holds. `epoch` grows with every new holder."""

    name = models.CharField(max_length=32, primary_key=True)
    holder = models.CharField(max_length=64, blank=True)
    epoch = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField()


class Schedule(models.Model):
    """Next due time of a periodic task. It is stored, so no restart skips or repeats a run."""

    task = models.CharField(max_length=100, primary_key=True)
    next_at = models.DateTimeField()
