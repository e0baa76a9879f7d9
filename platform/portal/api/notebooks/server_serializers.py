"""From rows of notebook servers to wire schemas."""

from portal.accounts.models import User
from portal.notebooks.culling import idle_limit_s
from portal.notebooks.models import Server
from portal.notebooks.server_lifecycle import ALIVE
from portal.notebooks.services.queries import cost_of, explanation_of, next_step_of, price_of
from portal.notebooks.urls import url_of
from portal.workloads.explanations import Explainer
from slipway.schemas.notebook_servers import ServerOut

_S_AN_HOUR = 3600
_S_A_MINUTE = 60


def server_out(server: Server, viewer: User, explainer: Explainer) -> ServerOut:
    """Serialize a server. Only its owner gets its URL."""
    is_mine = server.owner_id == viewer.pk
    is_alive = server.status in ALIVE
    return ServerOut(
        id=server.pk,
        project=server.project.slug,
        name=server.name,
        owner=server.owner.email,
        is_mine=is_mine,
        state=server.status,
        explanation=explanation_of(server, explainer),
        why_alive=server.why_alive,
        next_step=next_step_of(server) or None,
        stops_at=server.stops_at,
        tier=server.tier.slug,
        pool=server.pool and server.pool.name,
        framework=server.framework or None,
        nano_usd_per_hour=price_of(server),
        cost_nano_usd=cost_of(server),
        idle_minutes=server.idle_after_s // _S_A_MINUTE,
        idle_minutes_in_force=round(idle_limit_s(server) / _S_A_MINUTE, 1),
        max_hours=server.max_lifetime_s and server.max_lifetime_s / _S_AN_HOUR,
        daily_start=server.daily_start or None,
        daily_stop=server.daily_stop or None,
        days=server.days if server.daily_start or server.daily_stop else [],
        requirements=server.requirements,
        environment_version=server.environment_version and server.environment_version.reference,
        tags=server.tags,
        network=server.network_rule,
        workload=server.workload_id,
        url=url_of(server) if is_mine and is_alive else None,
        created_at=server.created_at,
        started_at=server.started_at,
        active_at=server.active_at,
    )
