"""Request class whose absolute URLs are those of the configured public URL.

Libraries build links from requests: those of password mails, of the OpenID provider, of redirects.
Django takes their host from the Host header, which the client chooses.
"""

from urllib.parse import urljoin

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.utils.encoding import iri_to_uri


class PortalRequest(ASGIRequest):
    """A request whose absolute URLs do not depend on its Host header."""

    def build_absolute_uri(self, location: str | None = None) -> str:
        """Return `location`, or the URL of the request, below SLIPWAY_PUBLIC_URL."""
        base = f"{settings.SLIPWAY_URL}{self.path}"
        own = f"{settings.SLIPWAY_URL}{self.get_full_path()}"
        uri: str | None = iri_to_uri(own if location is None else urljoin(base, str(location)))
        return str(uri)
