"""Addresses are built from the settings: the host of a request is the choice of its client."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.sources import modules, texts

# The modules that may look at the host of a request, and why.
ALLOWED = {
    "platform/portal/api/dashboards/app.py": "compares it with the address of dashboards",
    "platform/portal/api/dashboards/proxy.py": "names the dashboard to itself",
    "platform/portal/config/host_check.py": "compares it with the portal's addresses",
    "platform/portal/config/requests.py": "replaces the method that libraries build links with",
    "platform/portal/monitoring/adapters/webhooks.py": "names the receiver of a webhook",
    "workers/gateway/routes.py": "compares it with the gateway's addresses",
    "workers/gateway/http_parser.py": "requires one, and no more",
    "workers/health.py": "compares it with this machine's names",
    "workers/lab/hosts.py": "compares it with the notebooks' address",
    "notebooks_service/hosts.py": "compares it with the notebooks' address",
}
_CALLS = frozenset(
    {"build_absolute_uri", "get_host", "get_port", "get_current_site", "RequestSite"}
)
_TEXTS = frozenset(
    {
        *("Host", b"host", "HTTP_HOST", "SERVER_NAME", "SERVER_PORT", "django.contrib.sites"),
        *(
            f"{start}{what}"
            for start in ("X-Forwarded-", "x-forwarded-")
            for what in ("Host", "Port")
        ),
        *(
            "x-forwarded-host",
            b"x-forwarded-host",
            "HTTP_X_FORWARDED_HOST",
            "HTTP_X_FORWARDED_PORT",
        ),
    }
)
_IN_TEMPLATES = re.compile(r"get_host|build_absolute_uri|request\.META|current_site|site\.domain")


def _from_requests(module: ast.Module) -> Iterator[str]:
    """Yield each use of the host of a request."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in _CALLS:
            yield f"{node.lineno} {node.attr}"
        elif isinstance(node, ast.Name | ast.FunctionDef) and _name_of(node) in _CALLS:
            yield f"{node.lineno} {_name_of(node)}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").endswith("contrib.sites"):
            yield f"{node.lineno} {node.module}"
        elif isinstance(node, ast.Constant) and node.value in _TEXTS:
            yield f"{node.lineno} {node.value!r}"


def _name_of(node: ast.Name | ast.FunctionDef) -> str:
    return node.id if isinstance(node, ast.Name) else node.name


def _ours() -> dict[str, ast.Module]:
    folders = ("platform/portal/", "workers/", "notebooks_service/")
    return {name: module for name, module in modules().items() if name.startswith(folders)}


def test_only_checks_read_the_host_of_a_request() -> None:
    faults = {
        f"{name}:{use}"
        for name, module in _ours().items()
        if name not in ALLOWED
        for use in _from_requests(module)
    }
    assert not faults, f"build addresses from SLIPWAY_URL and its siblings: {sorted(faults)}"


def test_no_module_is_allowed_for_nothing() -> None:
    assert not [name for name in ALLOWED if not list(_from_requests(modules()[name]))]


def test_no_template_shows_the_host_of_a_request() -> None:
    templates = [
        name
        for name, text in texts().items()
        if "/templates/" in name and name.startswith("platform/") and _IN_TEMPLATES.search(text)
    ]
    assert not templates


@pytest.mark.parametrize(
    "source",
    [
        "link = request.build_absolute_uri('/x')",
        "host = request.get_host()",
        "site = get_current_site(request)",
        "host = request.META['HTTP_HOST']",
        "host = request.headers['Host']",
        "host = request.headers.get('X-Forwarded-Host')",
        "host = dict(scope['headers'])[b'host']",
        "apps = ['django.contrib.sites']",
        "from django.contrib.sites import shortcuts",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert list(_from_requests(ast.parse(source)))
