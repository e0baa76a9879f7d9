"""The API of the Hub and of notebook servers, assembled."""

from ninja import NinjaAPI

from portal.api import problems
from portal.api.bodies import StrictParser
from portal.api.hub import routes
from portal.api.root import OrjsonRenderer
from portal.api.routing import require_gates

hub_api = NinjaAPI(
    title="Slipway notebooks",
    version="1",
    description=(
        "Internal API of the Hub and notebook servers. Send `Authorization: Bearer <token>`. "
        "Every request is safe to retry; `slipway.schemas.notebook_servers` is the contract."
    ),
    urls_namespace="hub",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
problems.register(hub_api)
hub_api.add_router("", routes.router)
require_gates(hub_api)
