"""Environments of a project: requirements, builds and build logs."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.api.v1.workload_serializers import environment_out
from portal.compute.logs import log_store
from portal.compute.models import Environment, EnvironmentBuild, ProjectEnvironment
from portal.compute.services.environments import build_log_key, use_environment
from portal.core.errors import NotFound
from portal.core.pagination import paginate
from portal.core.streams import ByteStream
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.workloads import EnvironmentIn, EnvironmentOut

router = Router(tags=["Environments"])
MAX_LOG_READ_BYTES = 4 * 1024**2
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_BYTES = {
    "responses": {
        200: {
            "description": "The bytes of the build log",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}


class BuildLogQuery(BaseModel):
    """A range of the log of the current build on a node."""

    node: Annotated[Line, Field(max_length=48)]
    offset: int = Field(default=0, ge=0, le=2**53)
    limit: int = Field(default=MAX_LOG_READ_BYTES, ge=1, le=MAX_LOG_READ_BYTES)


def _environment(project: Project, digest: str) -> Environment:
    uses = ProjectEnvironment.objects.filter(project=project, environment__digest=digest)
    use = uses.select_related("environment").first()
    if use is None:
        raise NotFound
    return use.environment


@router.get("/projects/{project}/environments", auth=gate(_SEE), response=PageOf[EnvironmentOut])
def list_environments(
    request: HttpRequest, project: str, page: PageParameters
) -> PageOf[EnvironmentOut]:
    """List the environments the project has used, newest first."""
    uses = ProjectEnvironment.objects.filter(project=gated_project(request))
    uses_page = paginate(uses.select_related("environment"), cursor=page.cursor, limit=page.limit)
    return page_of(uses_page, lambda use: environment_out(use.environment))


@router.post(
    "/projects/{project}/environments",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response={201: EnvironmentOut},
)
def create_environment(
    request: HttpRequest, project: str, payload: EnvironmentIn
) -> Status[EnvironmentOut]:
    """Create an environment. The same requirements give the same environment."""
    made = use_environment(
        project=gated_project(request),
        by=require_principal(request).user,
        requirements=payload.requirements,
        python=payload.python,
    )
    return Status(201, environment_out(made))


@router.get("/projects/{project}/environments/{digest}", auth=gate(_SEE), response=EnvironmentOut)
def get_environment(request: HttpRequest, project: str, digest: str) -> EnvironmentOut:
    """Get an environment and its build on each node."""
    own = gated_project(request)
    environment = _environment(own, digest)
    builds = environment.builds.filter(project=own).select_related("node").order_by("pk")
    return environment_out(environment, builds)


@router.get(
    "/projects/{project}/environments/{digest}/log",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_BYTES,
)
def get_build_log(
    request: HttpRequest, project: str, digest: str, query: Query[BuildLogQuery]
) -> ByteStream:
    """Get a range of the build log of a node.

    The header `X-Slipway-Next-Offset` is the offset to continue at.
    """
    own = gated_project(request)
    builds = EnvironmentBuild.objects.filter(
        environment=_environment(own, digest), project=own, node__name=query.node
    )
    build = builds.first()
    if build is None:
        raise NotFound
    key = build_log_key(digest, build)
    length = max(0, min(query.limit, log_store().size(key) - query.offset))
    pieces = log_store().read(key, query.offset, length)
    response = ByteStream(pieces, content_type="application/octet-stream")
    response.headers["Content-Length"] = str(length)
    response.headers["X-Slipway-Next-Offset"] = str(query.offset + length)
    return response
