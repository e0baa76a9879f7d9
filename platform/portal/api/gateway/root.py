"""The API of gateways and replicas, assembled."""

from ninja import NinjaAPI

from portal.api import problems
from portal.api.bodies import StrictParser
from portal.api.gateway import routes
from portal.api.root import OrjsonRenderer
from portal.api.routing import require_gates

gateway_api = NinjaAPI(
    title="Slipway gateways",
    version="1",
    description=(
        "Internal API of gateways and replicas. Send `Authorization: Bearer <token>`. Every "
        "request is safe to retry; `slipway.schemas.serving` is the contract."
    ),
    urls_namespace="gateway",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
problems.register(gateway_api)
gateway_api.add_router("", routes.router)
require_gates(gateway_api)
