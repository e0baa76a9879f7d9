"""Django's database cache, which here does not hide that the database is down."""

from typing import Any

from django.core.cache.backends.db import DatabaseCache

from portal.core import db_patience
from portal.core.db_patience import DatabaseUnavailable


class PatientCache(DatabaseCache):
    """A cache whose writes fail when the request may wait no longer.

    To the throttles a write that fails silently would look like too many attempts.
    """

    def _base_set(self, mode: str, *args: Any, **kwargs: Any) -> bool:
        is_done: bool = super()._base_set(mode, *args, **kwargs)  # type: ignore[misc]
        patience = db_patience.current()
        if not is_done and patience is not None and patience.is_exhausted:
            raise DatabaseUnavailable(
                "the database did not respond within the request's time limit"
            )
        return is_done
