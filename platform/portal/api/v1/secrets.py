"""Write-only secrets of projects."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import ProjectSecret
from portal.accounts.principal import require_principal
from portal.accounts.services import secrets
from portal.accounts.services.secrets import write_secret
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of, secret_out
from portal.core.pagination import paginate
from slipway.schemas.accounts import Role, Scope, SecretIn, SecretOut
from slipway.schemas.base import PageOf

router = Router(tags=["Secrets"])


@router.get(
    "/projects/{project}/secrets",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.PROJECTS_READ)),
    response=PageOf[SecretOut],
)
def list_secrets(request: HttpRequest, project: str, page: PageParameters) -> PageOf[SecretOut]:
    """List names and dates. Values are never shown."""
    project_secrets = ProjectSecret.objects.filter(project=gated_project(request))
    project_secrets = project_secrets.select_related("updated_by").defer("ciphertext")
    return page_of(paginate(project_secrets, cursor=page.cursor, limit=page.limit), secret_out)


@router.put(
    "/projects/{project}/secrets/{name}",
    auth=gate(ProjectRole(Role.MAINTAINER, Scope.SECRETS_WRITE)),
    response=SecretOut,
)
def set_secret(request: HttpRequest, project: str, name: str, payload: SecretIn) -> SecretOut:
    """Create or replace a secret."""
    secret = write_secret(
        project=gated_project(request),
        by=require_principal(request).user,
        name=name,
        value=payload.value,
    )
    return secret_out(secret)


@router.delete(
    "/projects/{project}/secrets/{name}",
    auth=gate(ProjectRole(Role.MAINTAINER, Scope.SECRETS_WRITE)),
    response={204: None},
)
def delete_secret(request: HttpRequest, project: str, name: str) -> Status[None]:
    """Delete a secret."""
    secrets.delete_secret(project=gated_project(request), name=name)
    return Status(204, None)
