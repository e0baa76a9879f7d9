"""Hosts that a build may reach: those of the package indexes, and of addresses in requirements.

Names that pip's configuration of this node states are an administrator's. What a project's
requirements or an index page name must be public, or the configuration must name it too: otherwise
a build would be a way to the services of the machine and of its network.
"""

import html.parser
import ipaddress
import json
import logging
import re
import socket
import ssl
import urllib.request
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx
from pip._internal.models.index import PyPI

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError

log = logging.getLogger(__name__)
_PORTS: Final = {"https": 443, "http": 80}
# An index uses few hosts for its packages.
_PAGES_OF_AN_INDEX: Final = 8
_PAGE_BYTES: Final = 16 << 20
_WITHIN_S: Final = 10.0
_ACCEPT: Final = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIRECT = re.compile(r"\s@\s*(?:git\+)?(https://[^\s;]+)")
_PROXIES: Final = ("https_proxy", "http_proxy", "all_proxy")


@dataclass(frozen=True, order=True)
class HostPort:
    """A host, by name or address, and a port of it."""

    host: str
    port: int


def direct_addresses(requirements: str) -> list[str]:
    """The addresses of requirements of the form `NAME @ https://…`."""
    return _DIRECT.findall(requirements)


def allowed_hosts(
    settings: Mapping[str, str],
    requirements: str,
    variables: Mapping[str, str],
    accounts: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[HostPort, ...]:
    """Every host and port that a build may connect to. Blocks: it reads pages of the indexes.

    `settings` are pip's, by the names of its options, and `variables` those of the environment.
    `accounts` are name and password of indexes, by host.
    Where a proxy is configured, builds reach the proxy instead. Raises StartError for a requirement
    whose address is not public.
    """
    indexes, pages, files = _configured(settings)
    proxies = _proxies(settings, variables)
    configured = [parts for parts in map(_parts, (*indexes, *pages)) if parts is not None]
    # Compared with the port: another port of the host may be a service of the platform.
    trusted = {_host_port(parts) for parts in configured} | {HostPort(name, 443) for name in files}
    targets = {*configured}
    for address in direct_addresses(requirements):
        parts = _parts(address)
        if parts is None:
            raise _refused(address, "has no valid host")
        if _host_port(parts) not in trusted:
            _check_public(parts, address, proxied=bool(_proxy_of(parts, proxies)))
        targets.add(parts)
    names = [match[0] for line in requirements.splitlines() if (match := _NAME.match(line))]
    # The pages of the default index only refer to the host that pip knows.
    unknown = indexes[1:] if files else indexes
    connect = partial(_client, settings, variables, accounts or {})
    for parts in _named_by_pages(unknown, pages, names, connect):
        if _host_port(parts) in trusted or _is_public(parts.hostname or ""):
            targets.add(parts)
    hosts = {_reached(parts, proxies) for parts in targets}
    hosts |= {_reached(urlsplit(f"https://{name}"), proxies) for name in files}
    return tuple(sorted(hosts))


def channel_hosts(
    channels: Iterable[str], urls: Iterable[str], variables: Mapping[str, str]
) -> tuple[HostPort, ...]:
    """Every host and port that an installation from channels of conda may connect to. Blocks.

    An administrator allows the channels. Hosts that they redirect to must be public: of the index,
    and of one of the packages at `urls` on each host.
    """
    proxies = _proxies({}, variables)
    addresses = [f"{channel}/noarch/repodata.json" for channel in channels]
    by_host = {_host_port(parts): url for url in urls if (parts := _parts(url)) is not None}
    targets = {parts for address in addresses if (parts := _parts(address)) is not None}
    with _client({}, variables, {}) as client:
        for address in [*addresses, *by_host.values()]:
            with suppress(httpx.HTTPError, httpx.InvalidURL):
                response = client.head(address)
                for parts in (_parts(str(step.url)) for step in (*response.history, response)):
                    if parts is not None and _is_public(parts.hostname or ""):
                        targets.add(_without_path(parts))
    return tuple(sorted({_reached(parts, proxies) for parts in targets}))


def _configured(settings: Mapping[str, str]) -> tuple[list[str], list[str], set[str]]:
    """The configured indexes and pages of links, and the known file hosts of the indexes."""
    pages = settings.get("find-links", "").split()
    if settings.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        return [], pages, set()
    index, files = settings.get("index-url", ""), set[str]()
    if not index:
        # Taken from pip, so that only hosts are listed that pip would use.
        index, files = PyPI.simple_url, {PyPI.file_storage_domain}
    return [index, *settings.get("extra-index-url", "").split()], pages, files


def _parts(address: str) -> SplitResult | None:
    """Return the parts of a web address, or None for a folder or an invalid host or port."""
    try:
        parts = urlsplit(address)
        valid = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if valid else None


def _reached(parts: SplitResult, proxies: Mapping[str, str]) -> HostPort:
    proxy = _proxy_of(parts, proxies)
    through = _parts(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
    return _host_port(through or parts)


def _host_port(parts: SplitResult) -> HostPort:
    return HostPort(parts.hostname or "", parts.port or _PORTS[parts.scheme])


def _proxies(settings: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme, and under `no` the hosts that are reached without."""
    by_name = {name.lower(): value for name, value in variables.items()}
    own = settings.get("proxy", "")
    values = {
        name.removesuffix("_proxy"): own or by_name.get(name, "")
        for name in _PROXIES
        if own or by_name.get(name)
    }
    return {**values, "no": by_name.get("no_proxy", "")}


def _proxy_of(parts: SplitResult, proxies: Mapping[str, str]) -> str:
    host = parts.hostname or ""
    if urllib.request.proxy_bypass_environment(host, dict(proxies)):  # type: ignore[attr-defined]
        return ""
    return proxies.get(parts.scheme) or proxies.get("all") or ""


def _check_public(parts: SplitResult, address: str, *, proxied: bool) -> None:
    host = parts.hostname or ""
    addresses = _addresses(host)
    if not addresses and not proxied:
        raise _refused(address, f"has a host that cannot be resolved, {host!r}")
    if not all(map(_is_global, addresses)):
        raise _refused(address, f"has a host that is not on the public network, {host!r}")


def _is_public(host: str) -> bool:
    addresses = _addresses(host)
    return bool(addresses) and all(map(_is_global, addresses))


def _addresses(host: str) -> list[str]:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(entry[4][0]).partition("%")[0] for entry in addresses]


def _is_global(address: str) -> bool:
    ipv4_mapped = ipaddress.ip_address(address)
    if isinstance(ipv4_mapped, ipaddress.IPv6Address) and ipv4_mapped.ipv4_mapped is not None:
        ipv4_mapped = ipv4_mapped.ipv4_mapped
    return ipv4_mapped.is_global and not ipv4_mapped.is_multicast


def _named_by_pages(
    indexes: list[str],
    pages: list[str],
    names: list[str],
    connect: Callable[[], httpx.Client],
) -> set[SplitResult]:
    """Return the hosts of files that the index pages link to, as far as they can be read."""
    requested = [page for page in pages if _parts(page)]
    normal = dict.fromkeys(re.sub(r"[-_.]+", "-", name).lower() for name in names)
    for index in filter(_parts, indexes):
        some = list(normal)[:_PAGES_OF_AN_INDEX]
        requested += [f"{index.rstrip('/')}/{name}/" for name in some]
    result: set[SplitResult] = set()
    if not requested:
        return result
    with connect() as client:
        for address in requested:
            with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError):
                result |= _hosts_of_page(client, address)
    return result


def _client(
    settings: Mapping[str, str],
    variables: Mapping[str, str],
    accounts: Mapping[str, tuple[str, str]],
) -> httpx.Client:
    authorities = settings.get("cert") or variables.get("SSL_CERT_FILE")
    verify: ssl.SSLContext | bool = True
    with suppress(OSError):
        verify = ssl.create_default_context(cafile=authorities)
    return httpx.Client(
        verify=verify,
        proxy=settings.get("proxy") or None,
        follow_redirects=True,
        timeout=_WITHIN_S,
        headers={"Accept": _ACCEPT},
        auth=_Accounts(accounts),
    )


class _Accounts(httpx.Auth):
    """Signs in where an index has an account, and nowhere else a redirect may lead."""

    def __init__(self, accounts: Mapping[str, tuple[str, str]]) -> None:
        self._accounts = accounts

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the account of the host."""
        if account := self._accounts.get(request.url.host):
            yield from httpx.BasicAuth(*account).auth_flow(request)
        else:
            yield request


def _hosts_of_page(client: httpx.Client, address: str) -> set[SplitResult]:
    with client.stream("GET", address) as response:
        response.raise_for_status()
        body = b""
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _PAGE_BYTES:
                break
        visited = [str(step.url) for step in (*response.history, response)]
        text = body.decode("utf-8", "replace")
        is_json = "json" in response.headers.get("content-type", "")
    links = _links_of_json(text) if is_json else _links_of_html(text)
    absolute = (urljoin(visited[-1], link) for link in links)
    value = map(_parts, (*visited, *absolute))
    return {_without_path(parts) for parts in value if parts is not None}


def _without_path(parts: SplitResult) -> SplitResult:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    place = host if parts.port is None else f"{host}:{parts.port}"
    return SplitResult(parts.scheme, place or "", "", "", "")


def _links_of_json(text: str) -> list[str]:
    files = json.loads(text).get("files", [])
    return [str(entry["url"]) for entry in files if isinstance(entry, dict) and "url" in entry]


class _Links(html.parser.HTMLParser):
    """Collects the targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attributes: Iterable[tuple[str, str | None]]) -> None:
        """Note the target of a link."""
        if tag == "a":
            self.targets.extend(value for name, value in attributes if name == "href" and value)


def _links_of_html(text: str) -> list[str]:
    parser = _Links()
    parser.feed(text)
    return parser.targets


def _refused(address: str, why: str) -> StartError:
    parts = urlsplit(address)
    shown = f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else address
    return StartError(
        f"The requirement with the address {shown[:200]!r} {why}. Use an address on the public "
        "network, or ask an administrator to add its host and port to the node's pip "
        "configuration.",
        ReasonCode.ENVIRONMENT_FAILED,
    )
