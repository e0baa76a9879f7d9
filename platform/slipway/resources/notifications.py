"""Notifications: what needs a person now."""

from slipway.connection import Connection
from slipway.schemas.notifications import NotificationsOut


class Notifications:
    """Open alerts, approval requests, budgets that are nearly used up, and failed endpoints."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str | None = None) -> NotificationsOut:
        """List open notifications, those that wait for the caller first, in one project or all."""
        segments = ("projects", project) if project is not None else ()
        return self._connection.fetch(NotificationsOut, "GET", *segments, "notifications")
