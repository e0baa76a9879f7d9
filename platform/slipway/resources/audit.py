"""The audit log: who changed what, from where."""

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Literal

from slipway.connection import Connection, Download
from slipway.errors import InvalidInput
from slipway.pages import Pages
from slipway.schemas.accounts import AuditOut
from slipway.schemas.base import PageOf

ExportFormat = Literal["csv", "jsonl"]


class Audit:
    """Audit events that the caller may see: their own, and those of what they maintain.

    Administrators see all. Filters are combined with AND. `since` and `until` are datetimes with a
    time zone.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        *,
        project: str | None = None,
        actor: str | None = None,
        verb: str | None = None,
        target_kind: str | None = None,
        target_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Pages[AuditOut]:
        """List changes, newest first, in one project where it is named."""
        segments = ("projects", project, "audit") if project is not None else ("audit",)
        query = {
            "actor": actor,
            "verb": verb,
            "target_kind": target_kind,
            "target_id": target_id,
            "since": _iso_time("since", since),
            "until": _iso_time("until", until),
        }
        return Pages(self._connection, segments, PageOf[AuditOut], query)

    def export(
        self,
        *,
        format: ExportFormat = "csv",  # noqa: A002  (the API's parameter)
        actor: str | None = None,
        verb: str | None = None,
        target_kind: str | None = None,
        target_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AbstractContextManager[Download]:
        """Receive changes as one file, newest first: `with … as export: for chunk in export`."""
        query = {
            "format": format,
            "actor": actor,
            "verb": verb,
            "target_kind": target_kind,
            "target_id": target_id,
            "since": _iso_time("since", since),
            "until": _iso_time("until", until),
        }
        return self._connection.stream("audit", "export", query=query)


def _iso_time(field: str, timestamp: datetime | None) -> str | None:
    if timestamp is None:
        return None
    if timestamp.tzinfo is None:
        raise InvalidInput(
            f"`{field}` has no time zone.",
            field=field,
            next_step="Pass an aware datetime, for example datetime.now(UTC).",
        )
    return timestamp.isoformat()
