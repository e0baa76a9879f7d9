"""Assembly of the agent API."""

from ninja import NinjaAPI

from portal.api import problems
from portal.api.agent import checkpoints, file_requests, nodes, runs
from portal.api.bodies import StrictParser
from portal.api.root import OrjsonRenderer
from portal.api.routing import require_gates

agent_api = NinjaAPI(
    title="Slipway agents",
    version="1",
    description=(
        "The API of node agents. Send `Authorization: Bearer <node token>`. "
        "Every request may be repeated. The schemas are in `slipway.schemas.agent`."
    ),
    urls_namespace="agent",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
problems.register(agent_api)
for module in (nodes, runs, checkpoints, file_requests):
    agent_api.add_router("", module.router)
require_gates(agent_api)
