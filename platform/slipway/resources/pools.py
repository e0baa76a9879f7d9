"""Pools: machines that another scheduler allocates."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.pool_helpers import (
    HelperAnswerIn,
    HelperTakeIn,
    HelperTakeOut,
    PoolHelperOut,
)
from slipway.schemas.pools import PoolAccountOut, PoolChange, PoolIn, PoolOut, PoolUsageOut


class Pools:
    """The pools of the installation. Administrators create and change them.

    GET pools · POST pools · GET, PATCH, DELETE pools/{name} · GET, POST pools/{name}/account
    GET pools/{name}/usage · GET pools/{name}/helper · POST pools/{name}/helper/take
    POST pools/{name}/helper/requests/{id}
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str | None = None) -> Pages[PoolOut]:
        """List the pools that one may use, or those that a project may use."""
        return Pages(self._connection, ("pools",), PageOf[PoolOut], {"project": project})

    def get(self, name: str) -> PoolOut:
        """Return one pool."""
        return self._connection.fetch(PoolOut, "GET", "pools", name)

    def create(
        self,
        name: str,
        *,
        engine: str,
        settings: Mapping[str, Any] | None = None,
        most_requests: int | None = None,
        price_percent: int | None = None,
        projects: Sequence[str] | None = None,
    ) -> PoolOut:
        """Create a pool, for all projects unless some are given by their slugs."""
        body = build(
            PoolIn,
            name=name,
            engine=engine,
            settings=None if settings is None else dict(settings),
            most_requests=most_requests,
            price_percent=price_percent,
            projects=None if projects is None else list(projects),
        )
        return self._connection.fetch(PoolOut, "POST", "pools", body=body)

    def edit(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        most_requests: int | None = None,
        price_percent: int | None = None,
        is_open: bool | None = None,
        projects: Sequence[str] | None = None,
    ) -> PoolOut:
        """Change the given fields. `settings` replaces all of them."""
        body = build(
            PoolChange,
            settings=None if settings is None else dict(settings),
            most_requests=most_requests,
            price_percent=price_percent,
            is_open=is_open,
            projects=None if projects is None else list(projects),
        )
        return self._connection.fetch(PoolOut, "PATCH", "pools", name, body=body)

    def delete(self, name: str) -> None:
        """Remove a pool in which nothing waits or runs."""
        self._connection.send("DELETE", "pools", name)

    def account(self, name: str) -> PoolAccountOut:
        """Return one's own account in the system of a pool."""
        return self._connection.fetch(PoolAccountOut, "GET", "pools", name, "account")

    def link(self, name: str) -> PoolAccountOut:
        """Return the command that proves one's account in the system of a pool."""
        return self._connection.fetch(PoolAccountOut, "POST", "pools", name, "account")

    def usage(self, name: str, *, window: str = "month") -> PoolUsageOut:
        """Return the bill of a pool beside that of its engine (administrators only)."""
        query = {"window": window}
        return self._connection.fetch(PoolUsageOut, "GET", "pools", name, "usage", query=query)

    def helper(self, name: str, *, seen: int = 0, wait_s: float = 0.0) -> PoolHelperOut:
        """Return one's own helper in a pool, at the latest after `wait_s` seconds.

        It comes at once when its version is greater than `seen`.
        """
        query: dict[str, str | int] = {"seen": seen, "wait_s": f"{wait_s:g}"}
        return self._connection.fetch(PoolHelperOut, "GET", "pools", name, "helper", query=query)

    def take_request(self, name: str, *, helper: str) -> HelperTakeOut:
        """Take the oldest request for one's own helper. `helper` is the id of its process."""
        body = build(HelperTakeIn, helper=helper)
        segments = ("pools", name, "helper", "take")
        return self._connection.fetch(HelperTakeOut, "POST", *segments, body=body)

    def answer_request(self, name: str, request_id: str, answer: HelperAnswerIn) -> None:
        """Answer a request that one's own helper took."""
        segments = ("pools", name, "helper", "requests", request_id)
        self._connection.send("POST", *segments, body=answer)
