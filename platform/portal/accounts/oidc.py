"""Slipway as OpenID Connect provider for its own services."""

from typing import Any

from oauth2_provider.oauth2_validators import OAuth2Validator

from portal.accounts.models import User


class Validator(OAuth2Validator):
    """What the identity token says about a person."""

    oidc_claim_scope = OAuth2Validator.oidc_claim_scope | {
        "name": "profile",
        "preferred_username": "profile",
        "email": "email",
        "email_verified": "email",
    }

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        """Return the claims; the subject is the person's id and never changes."""
        user: User = request.user
        return {
            "sub": user.pk,
            "name": user.display_name,
            "preferred_username": user.email,
            "email": user.email,
            # An invitation bound to the address, or an administrator, vouches for it.
            "email_verified": True,
        }
