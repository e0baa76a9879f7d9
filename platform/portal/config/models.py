"""Tables of the process layer: who leads, and when each periodic task is next due."""

from django.db import models


class Leadership(models.Model):
    """One office that at most one process holds. `epoch` grows with every new holder."""

    name = models.CharField(max_length=32, primary_key=True)
    holder = models.CharField(max_length=64, blank=True)
    epoch = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField()


class Schedule(models.Model):
    """When a periodic task is next due; outlives every process, so no restart skips or repeats."""

    task = models.CharField(max_length=100, primary_key=True)
    next_at = models.DateTimeField()
