"""Where a request comes from: the address of the client, not of the proxies in front of us."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

_Address = IPv4Address | IPv6Address


def peer_of(request: HttpRequest) -> _Address | None:
    """Return the other end of the connection; None on a socket without addresses."""
    return _parsed(str(request.META.get("REMOTE_ADDR") or ""))


def client_address(request: HttpRequest) -> str | None:
    """Return the client's address as text.

    With SLIPWAY_TRUSTED_PROXIES = n, the n-th entry of X-Forwarded-For from the right is what the
    outermost proxy of ours saw. A header with fewer entries, or with something else there, did not
    come through our proxies, so the other end of the connection counts, as it does without proxies.
    """
    found = _client_of(request)
    return str(found) if found else None


def client_network(request: HttpRequest) -> str:
    """Return what throttles count by: an IPv4 address, or the /64 that one IPv6 client owns."""
    found = _client_of(request)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return str(found)


def _client_of(request: HttpRequest) -> _Address | None:
    proxies: int = settings.SLIPWAY_TRUSTED_PROXIES
    found: _Address | None = None
    if proxies:
        entries = request.headers.get("X-Forwarded-For", "").split(",")
        found = _parsed(entries[-proxies]) if len(entries) >= proxies else None
    return found or peer_of(request)


def _parsed(text: str) -> _Address | None:
    """Read `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1` or `[2001:db8::1]:80`."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
