"""Client address of a request, as opposed to the address of the proxies in front of the portal."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.http import HttpRequest

_Address = IPv4Address | IPv6Address


def peer_of(request: HttpRequest) -> _Address | None:
    """Return the peer address of the connection, or None on a socket without addresses."""
    return _parse(str(request.META.get("REMOTE_ADDR") or ""))


def client_address(request: HttpRequest) -> str | None:
    """Return the client's address as text.

    With SLIPWAY_TRUSTED_PROXIES = n, it is the n-th entry of X-Forwarded-For from the right, which
    the outermost trusted proxy added. A header with fewer entries, or with something else there,
    did not come through the proxies, so the peer address of the connection is used, as it is
    without proxies.
    """
    client = _client_of(request)
    return str(client) if client else None


def client_network(request: HttpRequest) -> str:
    """Return the rate-limit key of a client: an IPv4 address, or the /64 of an IPv6 client."""
    return _network(_client_of(request))


def network_of(scope: Any) -> str:
    """Return the rate-limit key of a request that is answered before Django handles it."""
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    peer = _parse(scope["client"][0]) if scope.get("client") else None
    return _network(_forwarded_address(forwarded.decode("latin1")) or peer)


def _network(address: _Address | None) -> str:
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)


def _client_of(request: HttpRequest) -> _Address | None:
    return _forwarded_address(request.headers.get("X-Forwarded-For", "")) or peer_of(request)


def _forwarded_address(forwarded: str) -> _Address | None:
    """Return the client of an X-Forwarded-For header, as far as trusted proxies vouch for it."""
    proxies: int = settings.SLIPWAY_TRUSTED_PROXIES
    entries = forwarded.split(",")
    return _parse(entries[-proxies]) if 0 < proxies <= len(entries) else None


def _parse(text: str) -> _Address | None:
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
