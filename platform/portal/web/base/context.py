"""Context processor for every template."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from portal.web.base.layout import Shell


def shell(request: HttpRequest) -> dict[str, Any]:
    """Return the frame of the page, which looks nothing up by itself, and the portal's address."""
    return {"shell": Shell(request), "public_url": settings.SLIPWAY_URL}
