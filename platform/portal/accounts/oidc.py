"""Slipway as OpenID Connect provider for its own services."""

from typing import Any

from oauth2_provider.models import (
    AbstractGrant,
    AccessToken,
    Application,
    Grant,
    IDToken,
    RefreshToken,
)
from oauth2_provider.oauth2_validators import OAuth2Validator

from portal.accounts.models import User


def end_service_sign_ins(user: User) -> None:
    """Delete every code and token with which a service can act for the person."""
    for model in (Grant, RefreshToken, AccessToken, IDToken):
        model.objects.filter(user=user).delete()


def register_service(*, client_id: str, secret: str, name: str, redirect_uri: str) -> None:
    """Register one of our own services as an OpenID client without a consent page. Idempotent."""
    Application.objects.update_or_create(
        client_id=client_id,
        defaults={
            "client_secret": secret,
            "name": name,
            "redirect_uris": redirect_uri,
            "client_type": Application.CLIENT_CONFIDENTIAL,
            "authorization_grant_type": Application.GRANT_AUTHORIZATION_CODE,
            "algorithm": Application.RS256_ALGORITHM,
            "skip_authorization": True,
        },
    )


class Validator(OAuth2Validator):
    """OAuth validator that adds the claims of a person and refuses everybody else."""

    oidc_claim_scope = OAuth2Validator.oidc_claim_scope | {
        "name": "profile",
        "preferred_username": "profile",
        "email": "email",
        "email_verified": "email",
    }

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        """Return the claims. The subject is the person's id, which never changes."""
        user: User = request.user
        return {
            "sub": user.pk,
            "name": user.display_name,
            "preferred_username": user.email,
            "email": user.email,
            # An invitation bound to the address, or an administrator, vouches for it.
            "email_verified": True,
        }

    def validate_redirect_uri(
        self, client_id: Any, redirect_uri: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Accept the registered address and no other.

        The library accepts every port of a loopback address, and a job may listen on one.
        """
        return redirect_uri in request.client.redirect_uris.split()

    def get_code_challenge_method(self, code: Any, request: Any) -> str | None:
        """Return the PKCE method of an authorization code, or None unless it is S256."""
        method = super().get_code_challenge_method(code, request)
        return method if method == AbstractGrant.CODE_CHALLENGE_S256 else None

    def validate_bearer_token(self, token: Any, scopes: Any, request: Any) -> bool:
        """Return True if the access token is valid and its person may still sign in.

        It is read from the header alone, since URLs end up in logs and histories.
        """
        if "Authorization" not in request.headers:
            return False
        bearer_token = super().validate_bearer_token(token, scopes, request)
        return bool(bearer_token and _has_active_user(request))

    def validate_code(
        self, client_id: Any, code: Any, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return True if the authorization code is valid and its person may still sign in."""
        value = super().validate_code(client_id, code, client, request, *args, **kwargs)
        return bool(value and _has_active_user(request))

    def validate_refresh_token(
        self, refresh_token: Any, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return True if the refresh token is valid and its person may still sign in."""
        value = super().validate_refresh_token(refresh_token, client, request, *args, **kwargs)
        return bool(value and _has_active_user(request))


def _has_active_user(request: Any) -> bool:
    user: User | None = getattr(request, "user", None)
    return user is not None and user.is_active and not user.is_service_account
