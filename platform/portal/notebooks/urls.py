"""URLs of notebooks, and the settings with which the Hub recognizes a server."""

import json
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from django.conf import settings
from django.urls import reverse

from portal.core.errors import Conflict
from portal.notebooks.hub_tokens import server_token
from portal.notebooks.models import Server
from portal.workloads.models import Lease, Workload
from portal.workloads.services.relay import relay_target
from portal.workloads.tokens import token_of
from slipway.schemas.notebook_servers import hub_name

_LOOPBACK = "127.0.0.1"


def require_notebooks() -> None:
    """Raise Conflict where this installation has no Hub."""
    if not settings.SLIPWAY_NOTEBOOKS_URL:
        raise Conflict(
            "Notebooks are not set up in this installation.",
            code="no_notebooks",
            next_step="Ask an administrator to set SLIPWAY_NOTEBOOKS_PUBLIC_URL.",
        )


def prefix_of(server: Server) -> str:
    """Return the path below which a server answers."""
    return f"/user/{server.owner_id}/{hub_name(server.pk)}/"


def host_of(server: Server) -> str:
    """Return scheme and host of a server's pages: the person's own where there are subdomains."""
    url: str = settings.SLIPWAY_NOTEBOOKS_URL
    if not settings.SLIPWAY_NOTEBOOKS_SUBDOMAINS:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{server.owner_id.replace('_', '-')}.{parts.netloc}"


def url_of(server: Server, path: str = "") -> str:
    """Return the address of JupyterLab in a server, with a file of the workspace open."""
    lab = f"{host_of(server)}{prefix_of(server)}lab"
    return f"{lab}/tree/{quote(path)}" if path else lab


def page_of(server: Server) -> str:
    """Return the URL of the portal's page of a server."""
    path = reverse("project_notebook", args=[server.project.slug, server.pk])
    return f"{settings.SLIPWAY_URL}{path}"


def start_of(workload: Workload) -> str:
    """Return the name of the present start of a server."""
    return f"{workload.pk}.{workload.epoch}"


def variables_of(server: Server, workload: Workload, node_address: str) -> Mapping[str, str]:
    """Return the environment variables of the server on the machine with that address."""
    is_here = node_address in ("", _LOOPBACK, "localhost")
    target = relay_target(workload)
    address = _LOOPBACK if is_here else node_address
    address = target.address if target is not None else address
    url: str = settings.SLIPWAY_NOTEBOOKS_URL
    hub_api = settings.SLIPWAY_NOTEBOOKS_HUB_API if is_here else f"{url}/hub/api"
    user, prefix, name = server.owner_id, prefix_of(server), hub_name(server.pk)
    is_https = url.startswith("https://")
    has_subdomains = settings.SLIPWAY_NOTEBOOKS_SUBDOMAINS
    callback = f"{host_of(server) if has_subdomains else ''}{prefix}oauth_callback"
    access = [f"access:servers!server={user}/{name}", f"access:servers!user={user}"]
    return {
        "JUPYTERHUB_API_TOKEN": server_token(workload.pk, workload.epoch),
        "JUPYTERHUB_CLIENT_ID": f"jupyterhub-user-{user}-{name}",
        # A cookie with this prefix must have the path "/", which requires one host per user.
        "JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED": "1" if has_subdomains and is_https else "0",
        "JUPYTERHUB_COOKIE_OPTIONS": json.dumps(
            {"samesite": "Lax"} | ({"secure": True} if is_https else {})
        ),
        "JUPYTERHUB_HOST": url if has_subdomains else "",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": callback,
        "JUPYTERHUB_OAUTH_SCOPES": json.dumps(access),
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps(access),
        "JUPYTERHUB_OAUTH_CLIENT_ALLOWED_SCOPES": "[]",
        "JUPYTERHUB_USER": user,
        "JUPYTERHUB_SERVER_NAME": name,
        "JUPYTERHUB_API_URL": hub_api,
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_SERVICE_PREFIX": prefix,
        "JUPYTERHUB_PUBLIC_URL": f"{host_of(server)}{prefix}",
        "JUPYTERHUB_PUBLIC_HUB_URL": f"{url}/hub/",
        "JUPYTERHUB_ALLOW_TOKEN_IN_URL": "0",
        "SLIPWAY_LAB_REPORTS": f"{settings.SLIPWAY_URL}/api/hub/v1/labs/{server.pk}/reports",
        "SLIPWAY_LAB_ADDRESS": address,
        "SLIPWAY_LAB_PAGE": page_of(server),
        # Limits that the resource meter shows.
        "MEM_LIMIT": str(workload.tier.memory_bytes),
        "CPU_LIMIT": str(workload.tier.cpu_millis / 1000),
        "SLIPWAY_LAB_PERSON": user,
        "SLIPWAY_LAB_NAME": server.owner.display_name,
        "SLIPWAY_LAB_EMAIL": server.owner.email,
        "MLFLOW_TRACKING_URI": f"{settings.SLIPWAY_URL}/mlflow",
        "MLFLOW_TRACKING_TOKEN": token_of(workload.pk, workload.epoch),
        "MLFLOW_EXPERIMENT_NAME": server.name,
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def node_address_of(workload: Workload) -> str:
    """Return the address of the machine that runs a server."""
    lease = Lease.objects.of_epoch(workload).select_related("node").first()
    return lease.node.address if lease is not None else _LOOPBACK
