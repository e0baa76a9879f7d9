"""Bodies that want to break something get a clear refusal, at every operation that reads one."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpResponse

from portal.accounts.gates import Administrator
from portal.compute.gates import NodeToken
from portal.notebooks.gates import HubToken
from tests.matrix.actors import Actor, Cast
from tests.matrix.bodies import BODIES, body_for
from tests.matrix.world import values_for
from tests.personas import Api, Personas, json_of
from tests.routes import Route, routes
from tests.security.problems import refusal
from tests.turns import in_turns

DEEP = 100_000
MALFORMED = {
    "nothing": b"",
    "white space": b"  \n",
    "cut off": b'{"name": "x"',
    "two documents": b'{"name": "x"} {}',
    "an array": b"[]",
    "a string": b'"x"',
    "a number": b"1",
    "null": b"null",
    "true": b"true",
    "NaN": b'{"name": NaN}',
    "Infinity": b'{"expires_in_days": Infinity}',
    "minus Infinity": b'{"expires_in_days": -Infinity}',
    "overflowing float": b'{"expires_in_days": 1e400}',
    "huge integer": b'{"expires_in_days": 1' + b"0" * 5_000 + b"}",
    "integer beyond 64 bits": b'{"expires_in_days": 99999999999999999999}',
    "invalid UTF-8": b'{"name": "\xff\xfe"}',
    "overlong UTF-8": b'{"name": "\xc0\x80"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "depth hidden in UTF-16": ('"' + "\u2200" * 9 + '"' + "[" * DEEP).encode("utf-16-le"),
    "byte order mark": b'\xef\xbb\xbf{"name": "x"}',
    "raw NUL": b'{"name": "a\x00b"}',
    "duplicate key": b'{"name": "a", "name": "b"}',
    "duplicate key inside": b'{"name": {"a": 1, "a": 2}}',
    "deep arrays": b"[" * DEEP,
    "deep arrays, closed": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field": b'{"name": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "unknown field": b'{"nmae": "x"}',
    "prototype": b'{"__proto__": {"x": 1}}',
    "a quote that never ends": b'{"name": "' + b'\\"' * 200_000,
}
# Stands for what people type as names; none of it may be stored.
BAD_NAMES = {
    "NUL": "a\0b",
    "a control character": "a\x1bb",
    "a C1 control character": "a\x85b",
    "DEL": "a\x7fb",
    "a direction override": "a\u202eb",
    "a direction isolate": "a\u2066b",
    "an Arabic letter mark": "a\u061cb",
    "a lone surrogate": "a\ud800b",
    "4,096 characters": "a" * 4_096,
    "4,096 astral characters": "\U0001f600" * 4_096,
    "nothing": "",
    "white space": " \u3000 ",
    "a line break": "a\nb",
}
BAD_TYPES: dict[str, Any] = {
    "null": None,
    "a number": 7,
    "a float": 1.5,
    "a list": ["a"],
    "an object": {"a": 1},
    "true": True,
}


CONTENT_TYPES = [
    "",
    "text/plain",
    "text/xml",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "a/b; c=d; charset=zlib",
    "application/octet-stream",
]


# They take any JSON object; tests/portal/pipelines/test_triggers.py has the ones that are refused.
_ANY_OBJECT = frozenset({"/api/v1/hooks/{hook}"})


def _reading() -> list[tuple[str, Route]]:
    """Return every operation that reads a JSON body of fields."""
    return [
        (verb, route)
        for route in routes()
        if route.template not in _ANY_OBJECT
        for verb in sorted(route.methods)
        if isinstance(BODIES.get((verb, route.template)), dict)
        or callable(BODIES.get((verb, route.template)))
    ]


def _send(cast: Cast, verb: str, route: Route, body: bytes, **headers: str) -> HttpResponse:
    api = cast.api(_asker(verb, route))
    path = route.path(**values_for(route, cast.world.own))
    with transaction.atomic():
        answer = api.call(verb, path, body, **headers)
        transaction.set_rollback(True)
    return answer


def _asker(verb: str, route: Route) -> str:
    """Return the column of somebody who may."""
    policy = route.policy_for(verb)
    if isinstance(policy, NodeToken):
        return "nod"
    if isinstance(policy, HubToken):
        return "hub"
    return "adm" if isinstance(policy, Administrator) else "own"


def _fields(valid: dict[str, Any], whose: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for field, value in valid.items():
        for what, bad in in_turns(BAD_NAMES | BAD_TYPES, f"{whose} {field}", one_in=6).items():
            if isinstance(value, str):
                yield f"{field} is {what}", valid | {field: bad}
            elif isinstance(value, list) and isinstance(bad, str):
                yield f"{field} holds {what}", valid | {field: [bad]}


_EVERY_OPERATION = pytest.mark.parametrize(
    ("verb", "route"),
    [pytest.param(verb, route, id=f"{verb} {route.template}") for verb, route in _reading()],
)


@_EVERY_OPERATION
def test_a_malformed_body_is_refused_in_words(cast: Cast, verb: str, route: Route) -> None:
    for what, body in in_turns(MALFORMED, f"{verb} {route.template}", one_in=8).items():
        answer = _send(cast, verb, route, body)
        assert 400 <= answer.status_code < 500, (what, answer.status_code, answer.content[:300])
        assert refusal(answer).code, what


@_EVERY_OPERATION
def test_a_hostile_value_in_a_field_is_refused_by_name(cast: Cast, verb: str, route: Route) -> None:
    valid = body_for(verb, route.template, cast.world, cast.world.people.alice)
    assert isinstance(valid, dict)
    for what, body in _fields(valid, f"{verb} {route.template}"):
        answer = _send(cast, verb, route, json.dumps(body).encode())
        # What only the object's state stands against has been read and found good.
        if answer.status_code < 400 or answer.status_code == 409:
            assert _may_pass(verb, route, what), (what, answer.status_code)
            continue
        problem = refusal(answer)
        assert problem.code in _REFUSALS, (what, problem)
        assert problem.field or problem.code not in ("invalid_input", "too_large"), what


_EMPTY_OR_LINES = ("nothing", "white space", "a line break")
# What a field may hold by its nature, by the end of the address: any text, nothing, null.
_FREE = {
    "/secrets/{name}": ("value is",),
    "/environments/{digest}/reports": ("log is",),
    "/agent/v1/heartbeat": ("boot_id is nothing", "boot_id is white space"),
    "/jobs": ("tier is null", "pool is null"),
    "/pools": ("projects is null",),
    "/node-groups": ("projects is null",),
    "/batching": ("mode is null",),
    "/jobs/quote": ("tier is null", "pool is null"),
    "/batch-predictions": ("tier is null",),
    "/batch-predictions/quote": ("tier is null",),
    "/sweeps": ("name is null",),
    "/sweeps/quote": ("name is null",),
    "/clone": ("name is null",),
    "/stop": ("message is nothing", "message is white space"),
    "/cordon": ("reason is nothing", "reason is white space"),
    "/drain": ("reason is nothing", "reason is white space"),
    "/default-environment": ("environment is null",),
    **{
        end: ("requirements is a line", *(f"description is {free}" for free in _EMPTY_OR_LINES))
        for end in (
            *("/named-environments", "/named-environments/{environment}"),
            "/named-environments/{environment}/versions",
        )
    },
    "/environments": tuple(f"requirements is {free}" for free in _EMPTY_OR_LINES),
    "/datasets/{dataset}": tuple(f"description is {free}" for free in _EMPTY_OR_LINES),
    "/versions": tuple(f"note is {free}" for free in _EMPTY_OR_LINES),
    "/notes/{kind}/{target}": tuple(f"text is {free}" for free in (*_EMPTY_OR_LINES, "4,096")),
    "/readme": tuple(f"text is {free}" for free in (*_EMPTY_OR_LINES, "4,096")),
    "/models/{model}": tuple(f"card is {free}" for free in (*_EMPTY_OR_LINES, "4,096")),
    # Rows are what models take and give: JSON of any kind, kept as it came.
    "/golden": ("inputs holds", "outputs holds"),
    "/uses": ("run is null",),
    "/views": (
        *("query is nothing", "query is white space", "query is 4,096 characters"),
        "experiment is null",
    ),
    # Base64 of three kilobytes that were typed.
    "/shells/{shell}/input": ("data is 4,096 characters",),
    # Files that exist may have any name.
    "/workspace-files": ("path is",),
    "/notebooks/servers/{server}": ("daily_stop is nothing",),
    "/endpoints/{endpoint}/promote": ("version is null",),
    "/rollback": ("reason is nothing", "reason is white space"),
    "/pause": ("reason is nothing", "reason is white space"),
}
_REFUSALS = (
    *("invalid_input", "too_large", "not_found"),
    *("no_such_snapshot", "no_such_script", "no_such_tier", "invalid_join_token"),
    *("no_such_pool", "no_such_engine", "no_such_job", "no_such_zone", "bad_cron"),
    *("no_such_person", "one_of_three", "webhook_refused", "no_member", "bad_requirement"),
    *("no_packages", "no_such_model", "no_such_dataset", "table_not_read", "not_the_job"),
)


def _may_pass(verb: str, route: Route, what: str) -> bool:
    """A secret's value is any text but NUL; a field of a PATCH may be null."""
    free = [
        words for end, all_of in _FREE.items() if route.template.endswith(end) for words in all_of
    ]
    if what.startswith(tuple(free)):
        return "NUL" not in what or "value" not in what
    return verb == "PATCH" and "null" in what


@_EVERY_OPERATION
def test_a_wrong_content_type_never_breaks_an_operation(
    cast: Cast, verb: str, route: Route
) -> None:
    valid = body_for(verb, route.template, cast.world, cast.world.people.alice)
    body = json.dumps(valid).encode()
    broken = {}
    for content_type in in_turns(CONTENT_TYPES, f"{verb} {route.template}", one_in=6):
        answer = _send(cast, verb, route, body, **{"Content-Type": content_type})
        if answer.status_code >= 500:
            broken[content_type] = answer.status_code
        elif answer.status_code >= 400:
            refusal(answer)
    assert not broken


@pytest.mark.parametrize(
    ("verb", "end", "body"),
    [
        ("PUT", "/golden", '{"inputs": [%s], "outputs": [1]}'),
        ("PUT", "/golden", '{"inputs": [1], "outputs": [%s]}'),
        ("POST", "/try", '{"request": {"instances": [%s]}}'),
    ],
)
def test_json_that_nobody_can_write_again_is_refused_by_name(
    cast: Cast, verb: str, end: str, body: str
) -> None:
    (route,) = (
        candidate for candidate in routes() if candidate.is_api and candidate.template.endswith(end)
    )
    for bad in ('"\\ud800"', '{"\\udfff": 1}', "[[1e400]]", "18446744073709551616"):
        answer = _send(cast, verb, route, (body % bad).encode())
        assert refusal(answer).field, bad


def test_over_all_operations_every_hostile_value_is_sent() -> None:
    whose = [f"{verb} {route.template}" for verb, route in _reading()]
    for values, one_in in ((MALFORMED, 8), (CONTENT_TYPES, 6)):
        sent = Counter(value for who in whose for value in in_turns(values, who, one_in=one_in))
        assert set(sent) == set(values)
        assert min(sent.values()) > 3


def test_the_depth_limit_counts_brackets_but_not_those_in_strings(people: Personas) -> None:
    alice = Api.of(people.alice)
    assert alice.post("projects", {"name": "[" * 90}).status_code == 201
    nested = b'{"name": ' + b"[" * 40 + b"]" * 40 + b"}"
    assert json_of(alice.post("projects", nested))["code"] == "too_deep"


def test_the_field_at_fault_is_named(people: Personas) -> None:
    alice = Api.of(people.alice)
    problem = json_of(alice.post("tokens", {"name": "x", "scopes": ["no:such"]}))
    assert problem["code"] == "invalid_input"
    assert problem["field"] == "scopes.0"
    problem = json_of(alice.post("projects", b'{"name": "a", "name": "b"}'))
    assert (problem["code"], problem["field"]) == ("duplicate_key", "name")


def test_an_anonymous_person_with_a_hostile_body_is_asked_to_sign_in(db: None) -> None:
    for body in MALFORMED.values():
        problem = refusal(Api().post("projects", body))
        assert problem.code == "unauthenticated"


def test_actors_are_what_the_matrix_says(cast: Cast) -> None:
    route = next(route for route in routes() if route.template == "/api/v1/whoami")
    assert isinstance(cast.actor("own", route, "GET"), Actor)
