"""Paths and queries that want to break something get a clear refusal, never a 500."""

from collections import Counter
from typing import Any
from urllib.parse import quote

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from portal.accounts.gates import Administrator
from portal.api.routing import lists_of, parameters_of
from tests.matrix.actors import Cast
from tests.matrix.world import values_for
from tests.personas import Api, Personas, json_of
from tests.routes import Route, routes
from tests.security.problems import refusal
from tests.turns import in_turns

BAD_PARTS = {
    "NUL": "a%00b",
    "a control character": "a%1Bb",
    "a direction override": quote("a\u202eb"),
    "not UTF-8": "a%FF%FEb",
    "a surrogate": "a%ED%A0%80b",
    "4,096 characters": "a" * 4_096,
    "dots": "..",
    "encoded dots": "%2e%2e",
    "twice encoded dots": "%252e%252e%252f",
    "an encoded slash": "a%2Fb",
    "an encoded backslash": "a%5Cb",
    "a semicolon": "vision;x=1",
    "a space": "%20",
    "a quote": "'%20OR%201=1--",
    "a template": "{{7*7}}",
    "a wildcard": "%25",
    "an integer": "0",
    "capital letters": "VISION",
    "a trailing dot": "vision.",
}
BAD_QUERIES = [
    "cursor=x",
    "cursor=%00",
    "cursor=" + "A" * 301,
    "cursor=////",
    "cursor=4pyT",
    "cursor=AAAA",
    "cursor=cHJqXzAw%0A",
    "limit=0",
    "limit=-1",
    "limit=201",
    "limit=NaN",
    "limit=Infinity",
    "limit=1e9",
    "limit=" + "9" * 5_000,
    "limit=1&limit=x",
    "q=%00",
    "q=a%E2%80%AEb",
    "q=" + "a" * 101,
    "q=%FF",
    "archived=maybe",
    "since=yesterday",
    "since=2026-01-01T00:00:00",
    "since=0000-00-00T00:00:00Z",
    "until=99999-01-01T00:00:00Z",
    "actor=%00",
    "verb=" + "v" * 300,
    "format=exe",
]
ODD_QUERIES = [
    "since=0001-01-01T00:00:00Z",
    "until=9999-12-31T23:59:59.999999Z",
    "since=0001-01-01T00:00:00%2B14:00",
    "until=9999-12-31T23:59:59-14:00",
    "q=%25_%5C",
    "q='%20OR%201=1--",
    "verb=.",
    "actor=%F0%9F%98%80",
    "unknown=1",
    "%00=1",
    "&&&&",
    "a" * 8_000,
    "&".join(f"x{number}=1" for number in range(600)),
    "user__password=x",
    "target_id__startswith=a",
]


def _with_parameters() -> list[Any]:
    return [
        pytest.param(route, id=route.template)
        for route in routes()
        if route.parameters and route.operations
    ]


def _ask(api: Api, verb: str, path: str) -> HttpResponse:
    with transaction.atomic():
        answer = api.call(verb, path.removeprefix("/api/v1/"), b"{}")
        transaction.set_rollback(True)
    return answer


@pytest.mark.parametrize("route", _with_parameters())
def test_a_hostile_part_of_a_path_is_refused_in_words(cast: Cast, route: Route) -> None:
    alice = Api.of(cast.world.people.alice)
    valid = values_for(route, cast.world.own)
    for hit in route.parameters:
        for what, bad in in_turns(BAD_PARTS, f"{route.template} {hit}", one_in=14).items():
            for verb in sorted(route.methods):
                answer = _ask(alice, verb, route.path(**valid | {hit: bad}))
                assert 400 <= answer.status_code < 500, (verb, hit, what, answer.status_code)
                refusal(answer)


def _lists() -> list[Any]:
    return [
        pytest.param(route, id=route.template)
        for route in routes()
        if (operation := route.operation("GET"))
        and ("cursor" in parameters_of(operation) or route.template.endswith("/export"))
    ]


def _asker(cast: Cast, route: Route) -> Api:
    people = cast.world.people
    administers = isinstance(route.policy_for("GET"), Administrator)
    return Api.of(people.root if administers else people.alice)


def _takes(route: Route, query: str) -> bool:
    operation = route.operation("GET")
    assert operation is not None
    return query.partition("=")[0] in parameters_of(operation)


@pytest.mark.parametrize("route", _lists())
def test_a_hostile_query_is_refused_in_words(cast: Cast, route: Route) -> None:
    asker = _asker(cast, route)
    path = route.path(**values_for(route, cast.world.own))
    for query in in_turns(BAD_QUERIES, route.template, one_in=6):
        answer = _ask(asker, "GET", f"{path}?{query}")
        problem = refusal(answer)
        assert problem.field, query
        assert (problem.code == "unknown_parameter") is not _takes(route, query), query


def test_over_all_routes_every_hostile_address_is_asked_for() -> None:
    lists = [case.values[0].template for case in _lists()]
    parts = [
        f"{case.values[0].template} {n}"
        for case in _with_parameters()
        for n in case.values[0].parameters
    ]
    for values, turns, one_in in (
        (BAD_QUERIES, lists, 6),
        (ODD_QUERIES, lists, 5),
        (BAD_PARTS, parts, 14),
    ):
        counts = Counter(
            address for whose in turns for address in in_turns(values, whose, one_in=one_in)
        )
        assert set(counts) == set(values)
        assert min(counts.values()) > 3


@pytest.mark.parametrize("path", ["/spend/export", "/p/vision/spend/export"])
def test_a_hostile_window_of_a_download_is_refused(people: Personas, path: str) -> None:
    client = Client()
    client.force_login(people.bob)
    for window in ("%00", "a%E2%80%AEb", "%FF", "a" * 300, "9999-12", "0000-01", "2026-13", "exe"):
        assert 400 <= client.get(f"{path}?window={window}").status_code < 500, window


@pytest.mark.parametrize("route", _lists())
def test_an_odd_query_is_answered(cast: Cast, route: Route) -> None:
    asker = _asker(cast, route)
    path = route.path(**values_for(route, cast.world.own))
    for query in in_turns(ODD_QUERIES, route.template, one_in=5):
        answer = _ask(asker, "GET", f"{path}?{query}")
        assert answer.status_code < 500, (query, answer.status_code)
        if answer.status_code >= 400:
            refusal(answer)


@pytest.mark.parametrize(
    "path",
    [
        "/api//v1/projects",
        "/api/v1//projects",
        "/api/v1/projects/",
        "/api/v1/projects//",
        "/api/v1/./projects",
        "/api/v1/../v1/projects",
        "/api/v1/%2e%2e/v1/projects",
        "/api/v1/projects;a=b",
        "/api/v1/projects%3Fq=1",
        "/api/v1/projects/vision%00",
        "/api/v1/projects/vision%0A",
        "/api/v1/PROJECTS",
        "/API/v1/projects",
        "/api/v1/none",
        "/api/v2/projects",
        "/api/",
        "//api/v1/projects",
        "/api/v1/projects/vision/members/..%2f..%2fother",
        "/%00",
        "/%FF",
        "/..%2f..%2fetc/passwd",
        "/static/../manage.py",
        "/static/%2e%2e/manage.py",
        "/healthz/",
    ],
)
def test_a_path_that_is_none_of_ours_is_not_found(people: Personas, path: str) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(people.alice)
    answer: Any = client.get(path)
    assert answer.status_code == 404, (path, answer.status_code)
    if path.startswith("/api/"):
        assert refusal(answer).code == "not_found"


def test_a_slip_in_the_name_of_a_filter_is_refused_and_says_what_was_meant(
    people: Personas,
) -> None:
    alice = Api.of(people.alice)
    problem = refusal(alice.get("projects?archivd=true"))
    assert (problem.status, problem.code, problem.field) == (422, "unknown_parameter", "archivd")
    assert problem.next_step is not None
    assert problem.next_step.startswith("Did you mean archived? It accepts archived, cursor, limit")
    problem = refusal(alice.get("whoami?" + "x" * 300 + "=1"))
    assert (problem.field, problem.next_step) == ("x" * 100, "It accepts none: leave it out.")


@pytest.mark.thorough
@pytest.mark.parametrize("route", _lists())
def test_a_single_value_that_stands_twice_is_refused(cast: Cast, route: Route) -> None:
    """Programs differ in whether the first or the last value counts."""
    operation = route.operation("GET")
    assert operation is not None
    path = route.path(**values_for(route, cast.world.own))
    for name in parameters_of(operation) - lists_of(operation):
        problem = refusal(_ask(_asker(cast, route), "GET", f"{path}?{name}=1&{name}=2"))
        assert (problem.status, problem.code, problem.field) == (422, "repeated_parameter", name)


def test_a_list_may_have_several_values(people: Personas) -> None:
    lists = {
        (route.template, name)
        for route in routes()
        if (operation := route.operation("GET")) is not None
        for name in lists_of(operation)
    }
    assert lists
    refused = {}
    alice = Api.of(people.alice)
    for template, name in lists:
        if template.count("{") == 1 and "{project}" in template:
            path = template.removeprefix("/api/v1/").replace("{project}", "vision")
            answer = alice.get(f"{path}?{name}=a&{name}=b")
            if "repeated_parameter" in answer.content.decode():
                refused[template] = name
    assert not refused


def test_bytes_that_are_no_text_are_refused_by_name(people: Personas) -> None:
    problem = refusal(Api.of(people.alice).get("projects?q=%FF"))
    assert (problem.status, problem.code, problem.field) == (422, "invalid_input", "q")
    assert problem.detail == "q: these bytes are not UTF-8."


@pytest.mark.parametrize("of", ["predictions", "monitoring"])
def test_a_moment_names_its_offset_from_utc(cast: Cast, of: str) -> None:
    template = f"/api/v1/projects/{{project}}/endpoints/{{endpoint}}/{of}"
    (route,) = (candidate for candidate in routes() if candidate.template == template)
    path = route.path(**values_for(route, cast.world.own))
    alice = Api.of(cast.world.people.alice)
    for bad in ("2026-01-01T00:00:00", "2026"):
        assert refusal(alice.get(f"{path}?since={bad}")).field == "since"
    assert alice.get(f"{path}?since=2026-01-01T00:00:00Z").status_code == 200


def test_what_a_stranger_slips_in_is_not_looked_at(people: Personas) -> None:
    assert Api.of(people.charlie).get("projects/vision?nothing=1").status_code == 404


def test_an_unknown_method_is_refused(people: Personas) -> None:
    alice = Api.of(people.alice)
    for verb in ("TRACE", "CONNECT", "PROPFIND", "POST ", "X" * 1_000):
        problem = refusal(alice.call(verb, "projects"))
        assert problem.code == "method_not_allowed"
    client = Client()
    client.force_login(people.alice)
    assert client.generic("PROPFIND", "/").status_code == 405


def test_a_refused_method_names_those_that_are_taken(people: Personas) -> None:
    answer = Api.of(people.alice).call("PUT", "projects")
    assert {verb.strip() for verb in answer.headers["Allow"].split(",")} == {"GET", "POST"}


def test_pages_of_a_list_are_walked_by_cursor_without_gaps_or_doubles(people: Personas) -> None:
    alice = Api.of(people.alice)
    made = [json_of(alice.post("projects", {"name": f"P{n}"}))["slug"] for n in range(7)]
    slugs: list[str] = []
    cursor = ""
    while True:
        page = json_of(
            alice.get(f"projects?limit=3&cursor={cursor}" if cursor else "projects?limit=3")
        )
        slugs += [project["slug"] for project in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
        alice.post("projects", {"name": "Made between two pages"})
    assert slugs == [*reversed(made), "elsewhere", "vision"]
