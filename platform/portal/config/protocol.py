"""HTTP as the portal accepts it from a socket."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class PortalProtocol(HttpToolsProtocol):
    """Refuses request targets other than a path.

    `GET http://other.example/` is meant for proxies. Its host would take precedence over the Host
    header (RFC 9112, 3.2.2), and nothing behind this would see it.
    """

    def on_headers_complete(self) -> None:
        """Begin a request; an error here is answered with 400."""
        if not self.url.startswith(b"/"):
            raise ValueError("the request target is not a path")
        super().on_headers_complete()
