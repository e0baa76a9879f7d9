"""What the layout of every page needs."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.principal import principal_of
from portal.core.errors import Unauthenticated


def shell(request: HttpRequest) -> dict[str, Any]:
    """Return the person behind the page."""
    try:
        principal = principal_of(request)
    except Unauthenticated:
        principal = None
    return {"principal": principal}
