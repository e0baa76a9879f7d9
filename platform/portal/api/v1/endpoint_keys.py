"""API keys of endpoints."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.endpoint_serializers import created_key_out, endpoint_key_out
from portal.api.v1.serializers import PageParameters, page_of
from portal.core.pagination import paginate
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.endpoints.models import EndpointKey
from portal.endpoints.services.keys import create_key, revoke_key
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.endpoints import EndpointKeyCreated, EndpointKeyIn, EndpointKeyOut

router = Router(tags=["Endpoints"])
_SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@router.get(
    "/projects/{project}/endpoints/{endpoint}/keys",
    auth=gate(_SEE),
    response=PageOf[EndpointKeyOut],
)
def list_endpoint_keys(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[EndpointKeyOut]:
    """List the endpoint's keys, newest first, without their text."""
    keys = EndpointKey.objects.shown().filter(endpoint=gated_endpoint(request))
    page = paginate(keys.select_related("made_by"), cursor=query.cursor, limit=query.limit)
    return page_of(page, endpoint_key_out)


@router.post(
    "/projects/{project}/endpoints/{endpoint}/keys",
    auth=gate(_CHANGE),
    response={201: EndpointKeyCreated},
)
def create_endpoint_key(
    request: HttpRequest, project: str, endpoint: str, payload: EndpointKeyIn
) -> Status[EndpointKeyCreated]:
    """Create a key. Only this response contains its text.

    Gateways accept it within seconds, and return 401 until then.
    """
    user = require_principal(request).user
    made = create_key(endpoint=gated_endpoint(request), by=user, spec=payload)
    return Status(201, created_key_out(made))


@router.delete(
    "/projects/{project}/endpoints/{endpoint}/keys/{key}",
    auth=gate(_CHANGE),
    response={204: None},
)
def revoke_endpoint_key(
    request: HttpRequest, project: str, endpoint: str, key: str
) -> Status[None]:
    """Revoke a key. Gateways refuse it within seconds."""
    user = require_principal(request).user
    revoke_key(endpoint=gated_endpoint(request), by=user, key_id=key)
    return Status(204, None)
