"""One leader among many processes, by a row with an expiry and guarded UPDATEs.

Time is the database's, so clocks of machines need not agree. A leader that stops renewing (killed,
frozen, cut off) is replaced by another after the lease. When it resumes, its next
`acquire_or_renew` returns False.
"""

from datetime import timedelta

from django.db import IntegrityError
from django.db.models import F
from django.db.models.functions import Now

from portal.config.models import Leadership


class LeaderLock:
    """A claim of `holder` (unique to a process) on the lock `name`."""

    def __init__(self, name: str, holder: str, *, lease_s: float = 6.0) -> None:
        self._row = Leadership.objects.filter(pk=name)
        self._name = name
        self._holder = holder
        self._lease = timedelta(seconds=lease_s)

    def acquire_or_renew(self) -> bool:
        """Acquire or renew the lock. Return True if held for the next `lease_s` seconds."""
        fresh = Now() + self._lease
        if self._row.filter(holder=self._holder, expires_at__gt=Now()).update(expires_at=fresh):
            return True
        # Read first, so that waiting processes do not take SQLite's write lock every second.
        if self._row.filter(expires_at__gt=Now()).exists():
            return False
        taken = self._row.filter(expires_at__lte=Now()).update(
            holder=self._holder, epoch=F("epoch") + 1, expires_at=fresh
        )
        return bool(taken) or self._create()

    def _create(self) -> bool:
        if self._row.exists():
            return False
        try:
            Leadership.objects.create(
                pk=self._name, holder=self._holder, epoch=1, expires_at=Now() + self._lease
            )
        except IntegrityError:
            return False
        return True

    def resign(self) -> None:
        """Release the lock for another process at once."""
        self._row.filter(holder=self._holder).update(expires_at=Now())
