"""The current account and its tokens."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import SignedIn
from portal.accounts.models import ApiToken
from portal.accounts.principal import require_principal
from portal.accounts.services import tokens
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of, token_out, user_out
from portal.core.errors import InvalidInput
from portal.core.pagination import paginate
from slipway.schemas.accounts import (
    Scope,
    TokenCreated,
    TokenIn,
    TokenOut,
    WhoAmI,
    scopes_of_preset,
)
from slipway.schemas.base import PageOf

router = Router(tags=["Account"])


@router.get("/whoami", auth=gate(SignedIn(confined=True)), response=WhoAmI)
def whoami(request: HttpRequest) -> WhoAmI:
    """Get the account and the token or session of this request."""
    principal = require_principal(request)
    return WhoAmI(
        user=user_out(principal.user),
        is_administrator=principal.user.is_administrator,
        token=token_out(principal.token) if principal.token else None,
    )


@router.get("/tokens", auth=gate(SignedIn(Scope.TOKENS_READ)), response=PageOf[TokenOut])
def list_tokens(request: HttpRequest, page: PageParameters) -> PageOf[TokenOut]:
    """List your tokens, including revoked and expired ones."""
    api_tokens = ApiToken.objects.filter(user=require_principal(request).user).select_related(
        "project"
    )
    return page_of(paginate(api_tokens, cursor=page.cursor, limit=page.limit), token_out)


@router.post("/tokens", auth=gate(SignedIn(Scope.TOKENS_WRITE)), response={201: TokenCreated})
def create_token(request: HttpRequest, payload: TokenIn) -> Status[TokenCreated]:
    """Create a token. Only this response contains its secret."""
    principal = require_principal(request)
    project = None
    if payload.project is not None:
        project = principal.projects().live().filter(slug=payload.project).first()
        if project is None:
            raise InvalidInput(
                f"There is no project {payload.project} that you can see.",
                code="no_such_project",
                field="project",
                next_step="List your projects, or leave the project out.",
            )
    if payload.preset is not None and payload.scopes:
        raise InvalidInput(
            "A token has either a preset or scopes of its own, not both.",
            field="preset",
            next_step="Leave out preset or scopes.",
        )
    scopes = payload.scopes
    if payload.preset is not None:
        scopes = scopes_of_preset(payload.preset, administrator=principal.user.is_administrator)
    made = tokens.create_token(
        by=principal,
        name=payload.name,
        scopes=scopes,
        project=project,
        expires_in_days=payload.expires_in_days,
    )
    return Status(201, TokenCreated(**token_out(made.token).model_dump(), token=made.secret))


@router.delete("/tokens/{token_id}", auth=gate(SignedIn(Scope.TOKENS_WRITE)), response={204: None})
def revoke_token(request: HttpRequest, token_id: str) -> Status[None]:
    """Revoke a token immediately."""
    tokens.revoke_token(by=require_principal(request).user, token_id=token_id)
    return Status(204, None)
