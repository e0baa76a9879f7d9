"""POSTs to user-supplied addresses, protected against requests to internal hosts (SSRF).

The name is resolved once, all of its addresses have to be public, and the connection uses the
address that was checked, so a changed DNS answer has no effect. Redirects are not followed and
proxies of the environment are not used.
"""

import hashlib
import hmac
import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

import httpx
from django.conf import settings

_TIMEOUT = httpx.Timeout(5.0, connect=3.0)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_MOST_URL = 2_000
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookRefused(Exception):
    """The address is not allowed. The message states the reason, for people."""


class NotDelivered(Exception):
    """The receiver did not accept the request. The message states the reason."""


def checked(url: str) -> SplitResult:
    """Return the parsed URL of a webhook. Raises WebhookRefused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise WebhookRefused("is not a URL") from None
    host = parts.hostname or ""
    if len(url) > _MOST_URL or not url.isascii() or any(c in url for c in " \\\t\r\n"):
        raise WebhookRefused("contains characters that are not allowed in URLs")
    if parts.scheme not in ("https", "http") or not host:
        raise WebhookRefused("does not begin with https://")
    if parts.username or parts.password or parts.fragment:
        raise WebhookRefused("contains a user name, a password or a fragment")
    if is_allowed_inside(host, port or _port(parts.scheme)):
        return parts
    if parts.scheme != "https":
        raise WebhookRefused("is not encrypted: it must begin with https://")
    literal = _literal(host)
    if literal is not None and not is_public(literal):
        raise WebhookRefused("is a private network address")
    return parts


def is_allowed_inside(host: str, port: int) -> bool:
    """Return whether the administrator allows an internal host, as `host:port`."""
    return f"{host}:{port}" in settings.SLIPWAY_WEBHOOK_HOSTS


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:  # 2130706433, 0x7f.1, 0177.1: forms that the system's resolver accepts
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_public(address: Address) -> bool:
    """Return whether an address is public, also within IPv6 transition formats."""
    inner: list[Address | None] = []
    if isinstance(address, ipaddress.IPv6Address):
        teredo = address.teredo
        inner = [address.ipv4_mapped, address.sixtofour, *(teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if any(item is not None and not is_public(item) for item in inner):
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def _resolved(host: str, port: int) -> str:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotDelivered("its host name cannot be resolved") from None
    addresses = [str(address[4][0]) for address in rows]
    if not is_allowed_inside(host, port):
        for address in addresses:
            if not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise WebhookRefused("resolves to a private network address")
    return addresses[0]


def signature_of(secret: str, moment_s: int, body: bytes) -> str:
    """Return the HMAC of a body and the time it was sent."""
    signed = f"{moment_s}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def post(
    url: str, body: bytes, headers: dict[str, str], *, transport: httpx.BaseTransport | None = None
) -> None:
    """POST JSON to a webhook. Raises WebhookRefused or NotDelivered.

    Tests replace the network with `transport`.
    """
    parts = checked(url)
    host = parts.hostname or ""
    port = parts.port or _port(parts.scheme)
    address = _resolved(host, port)
    pinned = f"[{address}]" if ":" in address else address
    path = parts.path or "/"
    target = f"{parts.scheme}://{pinned}:{port}{path}" + (f"?{parts.query}" if parts.query else "")
    sent = {"Host": parts.netloc, "Content-Type": "application/json"} | headers
    try:
        with httpx.Client(
            timeout=_TIMEOUT, follow_redirects=False, trust_env=False, transport=transport
        ) as client:
            request = client.build_request(
                "POST", target, content=body, headers=sent, extensions={"sni_hostname": host}
            )
            answer = client.send(request, stream=True)
            answer.close()
    except httpx.HTTPError as error:
        raise NotDelivered(f"it does not respond ({type(error).__name__})") from None
    if answer.is_redirect:
        raise WebhookRefused("responds with a redirect, which is not followed")
    if not answer.is_success:
        raise NotDelivered(f"it responds with status {answer.status_code}")
