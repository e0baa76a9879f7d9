"""The Hubs that open doors to notebooks, and the version of what they are told."""

from typing import ClassVar

from django.db import models
from django.db.models import F

from portal.core.models import IdField, Row

_ONLY = 1


class HubVersionQuerySet(models.QuerySet["HubVersion"]):
    """Verbs on the one row."""

    def raise_version(self) -> None:
        """Note a change of what Hubs are told; call it in the transaction of the change.

        The row stays locked until that commits, so versions become visible in their order.
        """
        if not self.filter(pk=_ONLY).update(version=F("version") + 1):
            self.get_or_create(pk=_ONLY, defaults={"version": 1})

    def current(self) -> int:
        """Return the version."""
        return self.values_list("version", flat=True).filter(pk=_ONLY).first() or 0


class HubVersion(models.Model):
    """How often what Hubs are told has changed: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    version = models.BigIntegerField(default=0)

    objects: ClassVar[HubVersionQuerySet] = HubVersionQuerySet.as_manager()  # type: ignore[assignment]


class Hub(Row):
    """A Hub that may ask about notebook servers, known by its token."""

    id = IdField("hub")
    name = models.CharField(max_length=48, unique=True)
    token_hash = models.CharField(max_length=64, unique=True)
