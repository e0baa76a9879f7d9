"""The agent API, assembled."""

from ninja import NinjaAPI

from portal.api import problems
from portal.api.agent import checkpoints, nodes, runs
from portal.api.bodies import StrictParser
from portal.api.root import OrjsonRenderer
from portal.api.routing import require_gates

agent_api = NinjaAPI(
    title="Slipway agents",
    version="1",
    description=(
        "Internal API between node agents and the portal. Send `Authorization: Bearer <node "
        "token>`. Every request is safe to retry; `slipway.schemas.agent` is the contract."
    ),
    urls_namespace="agent",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
problems.register(agent_api)
for module in (nodes, runs, checkpoints):
    agent_api.add_router("", module.router)
require_gates(agent_api)
