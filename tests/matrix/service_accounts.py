"""Service accounts of both sides of the matrix, and bodies of operations on them and on tokens."""

from typing import Any

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.accounts.services.service_accounts import (
    create_service_account,
    create_service_token,
)
from slipway.schemas.accounts import Role, Scope

_API = "/api/v1/projects/{project}/service-accounts"
_PAGES = "/p/{project}/service-accounts"
TOKENS_AND_ACCOUNTS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/v1/tokens"): {"name": "ci", "scopes": ["projects:read"]},
    ("POST", "/settings/tokens/new"): {
        "name": "ci",
        "preset": "read-only",
        "expires_in_days": "30",
    },
    ("POST", _API): {"name": "weekly", "role": "viewer"},
    ("PATCH", f"{_API}/{{account}}"): {"role": "viewer"},
    ("POST", f"{_API}/{{account}}/tokens"): {"name": "ci", "scopes": ["projects:read"]},
    ("POST", f"{_PAGES}/new"): {"name": "weekly", "role": "viewer"},
    ("POST", f"{_PAGES}/{{account}}/edit"): {"role": "viewer"},
    ("POST", f"{_PAGES}/{{account}}/tokens/new"): {
        "name": "ci",
        "preset": "ci",
        "expires_in_days": "30",
    },
}


def make_service_account(*, project: Project, by: User) -> dict[str, str]:
    """Make a service account with a token."""
    name = f"robot-of-{by.name}".lower()
    account = create_service_account(project=project, by=by, name=name, role=Role.CONTRIBUTOR)
    scopes = [Scope.PROJECTS_READ]
    made = create_service_token(account=account, by=Principal(by), name="ci", scopes=scopes)
    return {"service account": name, "service token": made.token.pk}
