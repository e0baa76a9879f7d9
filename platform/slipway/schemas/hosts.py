"""Hosts and ports of a server, and the Host headers that name them.

Portal, gateway, Hub and notebook servers share these rules, so that each answers only under the
addresses it was configured with. The port counts as well: another program of the same machine is a
stranger, although it has the same host name.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, Self
from urllib.parse import urlsplit

# The port is None if a Host header omits it.
Authority = tuple[str, int | None]

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LONGEST: Final = 262
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,254})(?::([0-9]{1,5}))?")


class HostRefused(Exception):
    """The request does not name an address of this server. `detail` is the message for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


def parse_authority(text: str) -> Authority:
    """Parse `host`, `host:port` or `[address]:port` into its canonical form. Raises ValueError.

    Case and the dot at the end of a name do not count. An IPv6 address is compressed.
    """
    match = _AUTHORITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError("it is not a host with an optional port")
    host = match[1].lower()
    if host.startswith("["):
        host = f"[{IPv6Address(host[1:-1]).compressed}]"
    else:
        host = host.removesuffix(".")
        if not host or host.startswith(".") or host.endswith(".") or ".." in host:
            raise ValueError("it has an empty label")
    port = int(match[2]) if match[2] is not None else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError("its port is not between 1 and 65535")
    return host, port


def format_authority(authority: Authority) -> str:
    """Return an authority as a Host header writes it."""
    host, port = authority
    return host if port is None else f"{host}:{port}"


def authorities_of(url: str) -> list[Authority]:
    """Return the Host header values of requests to `url`. Raises ValueError.

    A default port may be left out or written down.
    """
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or parts.username is not None:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    host, port = parse_authority(parts.netloc)
    default = DEFAULT_PORTS[parts.scheme]
    return [(host, None), (host, default)] if port in (None, default) else [(host, port)]


@dataclass(frozen=True)
class AllowedHosts:
    """The addresses of one server. `public` is the one used in messages.

    `names` are exact, `domains` also allow every name below them.
    """

    public: str
    names: frozenset[Authority]
    domains: frozenset[Authority] = frozenset()

    @classmethod
    def of(
        cls,
        public: str,
        *,
        urls: Iterable[str] = (),
        extra: Iterable[str] = (),
        port: int | None = None,
        listens_on: Iterable[str] = (),
    ) -> Self:
        """Collect addresses. Raises ValueError.

        `urls` are whole addresses beside `public`. `listens_on` are host names at `port`. `extra`
        are names of an operator: `host:port`, or `host` for `port` and the port of `public`, with a
        dot in front for all names of a domain.
        """
        names: set[Authority] = set()
        domains: set[Authority] = set()
        for url in (public, *urls):
            names.update(authorities_of(url))
        names.update((parse_authority(host)[0], port) for host in listens_on)
        for entry in extra:
            host, entry_port = parse_authority(entry.removeprefix("."))
            ports = {own for _, own in authorities_of(public)} | {port}
            items = {(host, each) for each in ([entry_port] if entry_port is not None else ports)}
            (domains if entry.startswith(".") else names).update(items)
        return cls(public=public, names=frozenset(names), domains=frozenset(domains))

    @classmethod
    def of_url(cls, url: str, *, with_subdomains: bool = False, urls: Iterable[str] = ()) -> Self:
        """Return the addresses of `url`, optionally of all names below it, and of `urls`."""
        own = frozenset(authorities_of(url))
        others = frozenset(authority for other in urls for authority in authorities_of(other))
        return cls(public=url, names=own | others, domains=own if with_subdomains else frozenset())

    @property
    def patterns(self) -> list[str]:
        """The addresses as Host headers write them, a domain with a dot in front."""
        exact = {format_authority(name) for name in self.names}
        return sorted(exact | {f".{format_authority(domain)}" for domain in self.domains})

    @property
    def host_names(self) -> list[str]:
        """The names without their ports, a domain with a dot in front."""
        return sorted({host for host, _ in self.names} | {f".{host}" for host, _ in self.domains})

    def accept(self, hosts: Sequence[str]) -> str:
        """Return the address in the Host headers of a request. Raises HostRefused."""
        if len(hosts) != 1:
            many = "more than one Host header" if hosts else "no Host header"
            raise HostRefused(400, "malformed_request", f"The request has {many}.")
        try:
            authority = parse_authority(hosts[0])
        except ValueError as error:
            detail = f"The Host header is malformed: {error}."
            raise HostRefused(400, "malformed_request", detail) from None
        if not self.allows(authority):
            raise HostRefused(
                421,
                "misdirected_request",
                f"This server does not answer as {format_authority(authority)}. "
                f"Its address is {self.public}.",
            )
        return format_authority(authority)

    def allows(self, authority: Authority) -> bool:
        """Return whether this is an address of the server."""
        if authority in self.names:
            return True
        host, port = authority
        return any(
            port == own and (host == domain or host.endswith(f".{domain}"))
            for domain, own in self.domains
        )
