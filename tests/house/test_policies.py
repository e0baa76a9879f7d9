"""Default deny: every route of every process declares its policy, and the check can fail."""

import ast
from collections.abc import Callable, Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.urls.resolvers import RegexPattern, URLResolver
from ninja import NinjaAPI
from pytest_django import Settings

from portal.accounts.gates import SignedIn
from portal.api.agent.root import agent_api
from portal.api.gateway.root import gateway_api
from portal.api.hub.root import hub_api
from portal.api.root import api
from portal.api.routing import UnguardedOperation, gate, require_gates
from portal.config.policies import LIBRARY_POLICIES
from portal.config.urls import urlpatterns as portal_urls
from portal.core.policy import PerOperation
from tests.house.sources import modules
from tests.routes import Route, every_pattern, gates_of, path_view_of, routes, walk

# What opens a door for HTTP. A module outside the portal that imports one of these must list its
# routes as ROUTES: an iterable of objects with `path` and `policy`.
_DOORS = (
    "aiohttp.web",
    "asyncio.start_server",
    "fastapi",
    "flask",
    "http.server",
    "socketserver",
    "starlette",
    "tornado",
    "websockets.asyncio.server",
    "wsgiref",
)


def faults_of(all_routes: Iterable[Route]) -> list[str]:
    """Say what is wrong with the policies of some routes."""
    faults = []
    for route in all_routes:
        where = f"{route.template} ({route.name or 'no name'})"
        if route.policy is None:
            faults.append(f"{where} declares no policy")
        elif isinstance(route.policy, PerOperation) and not route.operations:
            faults.append(f"{where} leaves its policy to operations, and has none")
        faults += [
            f"{operation.methods} {where} must have one gate and no other auth"
            for operation in route.operations
            if len(gates_of(operation)) != 1 or len(operation.auth_callbacks) != 1
        ]
    return faults


def test_every_route_of_the_portal_declares_its_policy() -> None:
    assert len(routes()) > 30, "the walk has missed the house"
    assert not faults_of(every_pattern())


def _unguarded(request: HttpRequest) -> HttpResponse:
    return HttpResponse("you should not see this")


def _synthetic(*patterns: Any) -> list[Route]:
    return list(walk(URLResolver(RegexPattern(r"^/"), list(patterns))))


def test_a_page_without_a_policy_is_found() -> None:
    open_routes = _synthetic(path("open", _unguarded, name="open"))
    assert faults_of(open_routes) == ["/open (open) declares no policy"]


def test_a_page_in_the_api_namespace_without_operations_is_found() -> None:
    inner = ([path("open", _unguarded, name="open")], "api", "api")
    assert faults_of(_synthetic(path("x/", inner))) == [
        "/x/open (api:open) leaves its policy to operations, and has none"
    ]


def test_an_api_operation_without_a_gate_is_found_and_refused_at_start() -> None:
    leaky = NinjaAPI(urls_namespace="leaky")
    leaky.get("/open")(_unguarded)
    faults = faults_of(_synthetic(path("leaky/", leaky.urls)))
    assert any("must have one gate" in fault for fault in faults)
    with pytest.raises(UnguardedOperation):
        require_gates(leaky)


def test_an_api_operation_with_a_second_way_in_is_found() -> None:
    leaky = NinjaAPI(urls_namespace="leaky2")
    leaky.get("/open", auth=[gate(SignedIn()), lambda _request: True])(_unguarded)
    assert any("one gate" in fault for fault in faults_of(_synthetic(path("x/", leaky.urls))))


urlpatterns = [path("unguarded", _unguarded, name="unguarded"), *portal_urls]


@pytest.mark.django_db
def test_a_route_without_a_policy_answers_nobody(
    settings: Settings, client: Client, people: Any
) -> None:
    settings.ROOT_URLCONF = __name__
    client.force_login(people.root)
    answer = client.get("/unguarded")
    assert answer.status_code == 403
    assert b"you should not see this" not in answer.content


def test_no_two_routes_share_a_name() -> None:
    """A page that took the name of a library's view would take over its policy."""
    seen: dict[str, Callable[..., Any]] = {}
    assert not [
        route.name
        for route in every_pattern()
        if route.name and seen.setdefault(route.name, route.view) is not route.view
    ]


def test_no_operation_hides_behind_an_earlier_route() -> None:
    """Two routers with one path: Django serves the first, and the second is never reached."""
    first: dict[str, Any] = {}
    hidden = [
        route.template
        for route in every_pattern()
        if first.setdefault(route.template, path_view_of(route.view) or route.view)
        is not (path_view_of(route.view) or route.view)
    ]
    assert not hidden


def test_every_operation_of_the_api_is_served() -> None:
    served = {id(operation) for route in every_pattern() for operation in route.operations}
    declared = {
        id(operation)
        for service_api in (api, agent_api, gateway_api, hub_api)
        for bound in service_api._get_bound_routers()
        for view in bound.path_operations.values()
        for operation in view.operations
    }
    assert declared == served


def test_the_table_of_library_views_holds_no_stale_names() -> None:
    assert not set(LIBRARY_POLICIES) - {route.name for route in every_pattern()}


def test_every_policy_says_who_may_pass() -> None:
    for route in every_pattern():
        assert route.policy is not None
        assert route.policy.describe()
        assert getattr(route.policy, "why", "said by its name"), "a public route says why"


def _imports(module: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


def opens_a_door(module: ast.Module) -> bool:
    """Whether a module outside the portal imports what serves HTTP."""
    return any(
        name == door or name.startswith(f"{door}.") for name in _imports(module) for door in _DOORS
    )


def unguarded_in(table: Iterable[Any]) -> list[str]:
    """Return the routes of another process's table that name no policy."""
    return [str(getattr(route, "path", route)) for route in table if not _policy_in(route)]


def _policy_in(route: Any) -> Any:
    return getattr(route, "policy", None)


def test_every_other_process_that_listens_lists_its_routes_with_their_policies() -> None:
    listening = [
        name
        for name, module in modules().items()
        if name.startswith(("workers/", "notebooks_service/")) and opens_a_door(module)
    ]
    assert "workers/health.py" in listening
    for name in listening:
        table = getattr(import_module(name.removesuffix(".py").replace("/", ".")), "ROUTES", None)
        assert table, f"{name} listens, but declares no ROUTES"
        assert not unguarded_in(table), f"{name} has routes without a policy"


def test_a_route_of_another_process_without_a_policy_is_found() -> None:
    table = [SimpleNamespace(path="/a", policy="loopback only"), SimpleNamespace(path="/b")]
    assert unguarded_in([*table, SimpleNamespace(path="/c", policy="")]) == ["/b", "/c"]


def test_a_process_that_listens_without_a_table_is_found() -> None:
    assert opens_a_door(ast.parse("from http.server import ThreadingHTTPServer"))
    assert opens_a_door(ast.parse("import asyncio\nasyncio.start_server(f, 'localhost', 1)"))
    assert not opens_a_door(ast.parse("import http.client"))
