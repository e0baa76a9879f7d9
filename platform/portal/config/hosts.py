"""Host names of the listeners of this installation. Does not use Django."""

from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from portal.config.env import Env
from slipway.schemas.hosts import (
    LOOPBACK_NAMES,
    AllowedHosts,
    Authority,
    authorities_of,
    parse_authority,
)

_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  (compared, not bound)


def listening_names(settings: Env) -> list[str]:
    """Return the host names of a listener at SLIPWAY_BIND, for probes and for local people."""
    names = list(LOOPBACK_NAMES)
    bound = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    if settings.bind not in _EVERY_ADDRESS:
        with suppress(ValueError):  # an address with a zone, which no Host header may have
            names.append(parse_authority(bound)[0])
    return names


def portal_hosts(settings: Env) -> AllowedHosts:
    """Return the addresses of the portal."""
    return AllowedHosts.of(
        settings.url,
        urls=[settings.internal_url] if settings.internal_url else [],
        extra=settings.extra_hosts,
        port=settings.portal_port,
        listens_on=listening_names(settings),
    )


def dashboards_url(settings: Env) -> str:
    """Return the address below which dashboards have host names, or "" if there is none."""
    if settings.dashboards_public_url:
        return settings.dashboards_public_url
    parts = urlsplit(settings.url)
    # Browsers know every name below localhost as this machine.
    if parts.scheme != "http" or parts.hostname not in ("localhost", "127.0.0.1"):
        return ""
    return f"http://localhost:{parts.port}" if parts.port else "http://localhost"


def dashboard_domains(settings: Env) -> list[Authority]:
    """Return the host below which dashboards have names, with its ports, or nothing."""
    url = dashboards_url(settings)
    return authorities_of(url) if url else []


def served_hosts(settings: Env) -> AllowedHosts:
    """Return the addresses of the portal, and those of dashboards, which its port serves, too."""
    hosts = portal_hosts(settings)
    return replace(hosts, domains=hosts.domains | frozenset(dashboard_domains(settings)))


def notebooks_hosts(settings: Env) -> AllowedHosts:
    """Return the addresses of notebooks: theirs alone.

    Any other name of this machine might be the portal's, whose cookies would come with it.
    """
    url = settings.notebooks_url
    return AllowedHosts.of_url(url, with_subdomains=settings.notebooks_subdomains)
