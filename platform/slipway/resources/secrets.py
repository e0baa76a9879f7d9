"""Secrets of a project: written, never read back."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import SecretIn, SecretOut
from slipway.schemas.base import PageOf


class Secrets:
    """Names of a project's secrets. Workloads of the project get the values."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str) -> Pages[SecretOut]:
        """List the names, and who wrote them last."""
        return Pages(self._connection, ("projects", project, "secrets"), PageOf[SecretOut])

    def set(self, name: str, value: str, *, project: str) -> SecretOut:
        """Write a secret, replacing the value it had."""
        body = build(SecretIn, value=value)
        return self._connection.fetch(
            SecretOut, "PUT", "projects", project, "secrets", name, body=body
        )

    def delete(self, name: str, *, project: str) -> None:
        """Delete a secret."""
        self._connection.send("DELETE", "projects", project, "secrets", name)
