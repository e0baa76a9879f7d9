"""Sign-in through the portal. While it is unreachable, people get a 503 with Retry-After."""

from http import HTTPStatus
from typing import Any, Final

from oauthenticator.generic import GenericOAuthenticator
from oauthenticator.oauth2 import HTTPClientError, web

_TRY_AGAIN_S: Final = "5"
_MESSAGE: Final = "Slipway is not responding. Reload this page in a moment."


class Unavailable(web.HTTPError):  # type: ignore[misc]
    """503 response: the portal does not answer. JupyterHub sends its headers and message."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, _MESSAGE)
        self.headers = {"Retry-After": _TRY_AGAIN_S}
        self.jupyterhub_message = _MESSAGE


class SlipwayAuthenticator(GenericOAuthenticator):  # type: ignore[misc]
    """OpenID Connect with the portal."""

    async def fetch(self, req: Any, *arguments: Any, **options: Any) -> Any:
        """Send a request to the portal, or raise HTTPError 503 if it does not answer or fails."""
        try:
            return await super().fetch(req, *arguments, **options)
        except HTTPClientError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise Unavailable from error
        except OSError as error:
            raise Unavailable from error
