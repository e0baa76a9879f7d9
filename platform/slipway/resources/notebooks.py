"""Notebook servers: launched, listed, started again, stopped, deleted."""

from collections.abc import Mapping, Sequence

from slipway.connection import Connection, address
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.dashboards import DashboardOut
from slipway.schemas.notebook_servers import ServerEdit, ServerIn, ServerKeyOut, ServerOut
from slipway.schemas.training import Quote


class Notebooks:
    """The notebook servers of a project. `server` is the id of one (`nbs_…`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, server: str, *, project: str) -> str:
        """Return the address of the page of a server, which opens JupyterLab once it is ready."""
        path = address("p", project, "notebooks", "servers", server)
        return f"{self._connection.url}{path}?open=1"

    def list(
        self, *, project: str, state: str | None = None, mine: bool = False
    ) -> Pages[ServerOut]:
        """List notebook servers, newest first. `mine` excludes those of others."""
        query = {"state": state, "mine": "true" if mine else None}
        return Pages(self._connection, _path(project), PageOf[ServerOut], query)

    def get(self, server: str, *, project: str) -> ServerOut:
        """Return one server: its state, why it is alive, its cost."""
        return self._connection.fetch(ServerOut, "GET", *_path(project), server)

    def launch(
        self,
        name: str | None = None,
        *,
        project: str,
        tier: str | None = None,
        pool: str | None = None,
        framework: str | None = None,
        requirements: str | None = None,
        environment: str | None = None,
        idle_minutes: int | None = None,
        max_hours: float | None = None,
        daily_start: str | None = None,
        daily_stop: str | None = None,
        days: Sequence[str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ServerOut:
        """Launch a notebook server. `tier` is the cheapest unless given.

        `environment` is one of the project, such as `vision` or `vision@3`. In a `pool` another
        scheduler allocates its node. With the `framework` "ray" a cluster of Ray runs beside it.

        It stops `idle_minutes` (60) after the last activity, sooner on expensive tiers. Files
        remain. At `daily_start` and `daily_stop` ("08:00", UTC) of `days` ("mon" to "fri" unless
        given) it starts and stops by itself.
        """
        body = build(
            ServerIn,
            name=name,
            tier=tier,
            pool=pool,
            framework=framework,
            requirements=requirements,
            environment=environment,
            idle_minutes=idle_minutes,
            max_hours=max_hours,
            daily_start=daily_start,
            daily_stop=daily_stop,
            days=list(days) if days is not None else None,
            tags=dict(tags) if tags is not None else None,
        )
        return self._connection.fetch(ServerOut, "POST", *_path(project), body=body)

    def edit(
        self,
        server: str,
        *,
        project: str,
        tier: str | None = None,
        pool: str | None = None,
        environment: str | None = None,
        idle_minutes: int | None = None,
        max_hours: float | None = None,
        daily_start: str | None = None,
        daily_stop: str | None = None,
        days: Sequence[str] | None = None,
    ) -> ServerOut:
        """Change a server of yours. An empty time and 0 hours remove those limits.

        `tier`, `pool`, `environment` and `max_hours` change only while it is stopped. An empty
        `pool` stands for the nodes of the installation. `environment` is one
        of the project, such as `vision` or `vision@3`, or `installation`.
        """
        body = build(
            ServerEdit,
            tier=tier,
            pool=pool,
            environment=environment,
            idle_minutes=idle_minutes,
            max_hours=max_hours,
            daily_start=daily_start,
            daily_stop=daily_stop,
            days=list(days) if days is not None else None,
        )
        return self._connection.fetch(ServerOut, "PATCH", *_path(project), server, body=body)

    def quote(
        self,
        name: str | None = None,
        *,
        project: str,
        tier: str | None = None,
        max_hours: float | None = None,
    ) -> Quote:
        """Return what a server would cost and whether it could start now. Nothing starts."""
        body = build(ServerIn, name=name, tier=tier, max_hours=max_hours)
        return self._connection.fetch(Quote, "POST", *_path(project), "quote", body=body)

    def start(self, server: str, *, project: str) -> ServerOut:
        """Start a server of yours again. A running one is not changed."""
        return self._connection.fetch(ServerOut, "POST", *_path(project), server, "start")

    def stop(self, server: str, *, project: str) -> ServerOut:
        """Stop a server: yours, or as a maintainer anybody's."""
        return self._connection.fetch(ServerOut, "POST", *_path(project), server, "stop")

    def key(self, server: str, *, project: str) -> ServerKeyOut:
        """Return the address of Jupyter's own API in your server, and a token for it.

        For editors and programs. The token ends with this start of the server.
        """
        return self._connection.fetch(ServerKeyOut, "POST", *_path(project), server, "key")

    def open_dashboard(self, server: str, *, project: str) -> DashboardOut:
        """Open the dashboard of the cluster beside a server, with an address for one browser."""
        return self._connection.fetch(DashboardOut, "POST", *_path(project), server, "dashboards")

    def delete(self, server: str, *, project: str) -> None:
        """Delete a stopped server. Its files remain in the project's workspace."""
        self._connection.send("DELETE", *_path(project), server)


def _path(project: str) -> tuple[str, ...]:
    return ("projects", project, "notebooks", "servers")
