"""Accounts, for administrators."""

from django.http import HttpRequest
from ninja import Router

from portal.accounts.gates import Administrator
from portal.accounts.models import User
from portal.accounts.services.people import change_account
from portal.api.routing import gate
from portal.api.v1.serializers import SearchParameters, page_of
from portal.core.pagination import paginate
from slipway.schemas.accounts import AccountChange, AccountOut
from slipway.schemas.base import PageOf

router = Router(tags=["People"])


@router.get("/users", auth=gate(Administrator()), response=PageOf[AccountOut])
def list_users(request: HttpRequest, query: SearchParameters) -> PageOf[AccountOut]:
    """List the accounts of this installation, newest first."""
    users = User.objects.matching(query.q)
    page = paginate(users, cursor=query.cursor, limit=query.limit)
    return page_of(page, AccountOut.model_validate)


@router.patch("/users/{user_id}", auth=gate(Administrator()), response=AccountOut)
def update_user(request: HttpRequest, user_id: str, payload: AccountChange) -> AccountOut:
    """Suspend or reinstate an account, or change its administrator role."""
    changed = change_account(
        user_id=user_id,
        is_active=payload.is_active,
        is_administrator=payload.is_administrator,
        hand_over_to=payload.hand_over_to,
    )
    return AccountOut.model_validate(changed)
