"""An object of another tenant answers exactly like one that does not exist.

Same status, same body, same headers, same questions to the database: nothing in an answer, nor the
work behind it, tells the two apart.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from portal.accounts.gates import ProjectRole, TeamRole
from portal.compute.gates import NodeToken
from portal.core.policy import Public
from portal.workloads.gates import WorkloadRole
from tests.matrix.actors import Cast
from tests.matrix.world import NATURAL_KEYS, parameter_at
from tests.personas import Api, Personas, json_of
from tests.routes import VERBS, Route, routes
from tests.turns import asked_all

_CHANGING_HEADERS = frozenset({"X-Request-Id", "Date", "Set-Cookie", "Content-Length"})
# 405 where a page takes forms alone; 409 is the agents' word for a task that is not theirs.
_REFUSALS = (401, 403, 404, 405, 409)
# A page masks its anti-forgery token anew each time it is drawn.
_ANTI_FORGERY = re.compile(r'(?<=name="csrfmiddlewaretoken" value=")[^"]+')
_LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+\b|\bs\d+_x\d+\b")
_TENANTS = ProjectRole | TeamRole | WorkloadRole | NodeToken
# The verb of a route and the kinds of object its parameters name: own, foreign or missing.
Case = tuple[Route, str, dict[str, str]]


@dataclass(frozen=True)
class Seen:
    """What a caller, and somebody with a stop-watch, can see of an answer."""

    status: int
    headers: dict[str, str]
    body: str
    queries: list[str]


def _sides(route: Route) -> Iterator[dict[str, str]]:
    """Yield every way to mix own and foreign objects in a path, with at least one foreign."""
    for sides in product(("own", "foreign"), repeat=len(route.parameters)):
        if "foreign" in sides:
            yield dict(zip(route.parameters, sides, strict=True))


def _cases() -> list[Any]:
    """Return what to ask: each test tries one verb of a route in every mix, as everybody."""
    return [
        pytest.param(route, verb, id=f"{verb} {route.template}")
        for route in routes()
        if route.parameters and not _proves_itself(route)
        for verb in VERBS
        if (route.operation(verb) or (not route.operations and verb in ("GET", "POST")))
        and not isinstance(route.policy_for(verb), Public)
    ]


def _named(sides: dict[str, str]) -> str:
    return "/".join(sides.values())


def _askers(route: Route) -> tuple[str, ...]:
    """Machines speak to an API of their own, where people have no business."""
    return ("nod", "own") if route.template.startswith("/api/agent/") else ("own", "vwr", "ano")


def _proves_itself(route: Route) -> bool:
    """Whether a part of the path is a secret: who knows it may learn what it leads to."""
    return any(parameter_at(route, name).kind == "link" for name in route.parameters)


def _values(cast: Cast, route: Route, sides: dict[str, str], *, hidden: str) -> dict[str, str]:
    """Return concrete values; `hidden` says what stands where the other tenant's object would."""
    values = {}
    for name, side in sides.items():
        parameter = parameter_at(route, name)
        if side == "own":
            values[name] = cast.world.own[parameter.kind]
        elif hidden == "foreign":
            values[name] = cast.world.foreign[parameter.kind]
        else:
            values[name] = parameter.missing
    return values


def _look(cast: Cast, column: str, route: Route, verb: str, values: dict[str, str]) -> Seen:
    actor = cast.actor(column, route, verb)
    with (
        transaction.atomic(),
        transaction.atomic(using="tracking"),
        CaptureQueriesContext(connection) as captured,
        CaptureQueriesContext(connections["tracking"]) as tracked,
    ):
        answer = cast.ask(actor, route, verb, values)
        queries = [query["sql"] for query in (*captured, *tracked)]
        seen = _seen(answer, list(values.values()), queries)
        transaction.set_rollback(True)
        transaction.set_rollback(True, using="tracking")
    return seen


def _seen(answer: HttpResponse, named: list[str], queries: list[str]) -> Seen:
    body = b"".join(answer) if answer.streaming else answer.content
    text = body.decode()
    headers = {
        name: value for name, value in answer.headers.items() if name not in _CHANGING_HEADERS
    }
    text = text.replace(answer.headers["X-Request-Id"], "")
    text = _ANTI_FORGERY.sub("", text)
    for value in sorted(named, key=len, reverse=True):
        text = text.replace(value, "…")
        headers = {name: header.replace(value, "…") for name, header in headers.items()}
    return Seen(answer.status_code, headers, text, [_LITERAL.sub("?", sql) for sql in queries])


def _told_apart(
    cast: Cast, column: str, route: Route, verb: str, sides: dict[str, str]
) -> tuple[Seen, Seen] | None:
    """Return the answers for a foreign and a missing object where they differ, or let in."""
    foreign = _look(cast, column, route, verb, _values(cast, route, sides, hidden="foreign"))
    missing = _look(cast, column, route, verb, _values(cast, route, sides, hidden="missing"))
    creates = _creates_by_name(route, verb, sides)
    if creates:
        foreign, missing = _without_new_values(foreign), _without_new_values(missing)
    # A role too low is told before the object is looked at.
    is_refused = column == "ano" or creates or foreign.status in _REFUSALS
    return None if foreign == missing and is_refused else (foreign, missing)


def _pairs(route: Route) -> list[tuple[str, dict[str, str]]]:
    """Return who may ask for which mix; strangers are refused before a lookup, so one shows it."""
    mixes = list(_sides(route))
    pairs = product(_askers(route), mixes)
    return [(column, sides) for column, sides in pairs if column != "ano" or sides is mixes[-1]]


def _questions(route: Route, verb: str) -> Sequence[tuple[str, dict[str, str]]]:
    """Return who asks an operation for which mix; `make test-slow` and machines ask for all.

    The owner of everything but the last part always asks: a lookup that forgets the tenant fails
    there.
    """
    first, *others = _pairs(route)
    if asked_all() or route.template.startswith("/api/agent/"):
        return [first, *others]
    return [first, *_turns()[verb, route.template]]


@cache
def _turns() -> dict[tuple[str, str], list[tuple[str, dict[str, str]]]]:
    """Return the other questions that the gate asks an operation: those asked least so far.

    Every second operation has one, and each has as many as it takes to ask them all, where few
    operations have so many parameters.
    """
    operations = [case.values for case in _cases()]
    alike = Counter(len(route.parameters) for route, _ in operations)
    counts: Counter[tuple[str, ...]] = Counter()
    turns = {}
    for at, (route, verb) in enumerate(operations):
        _, *others = _pairs(route)
        enough = -(-len(others) // alike[len(route.parameters)])
        at_once = at % 2 if enough == 1 else enough
        others.sort(key=lambda pair: counts[(pair[0], *pair[1].values())])
        turns[verb, route.template] = others[:at_once]
        counts.update((column, *sides.values()) for column, sides in others[:at_once])
    return turns


@pytest.mark.parametrize(("route", "verb"), _cases())
def test_a_foreign_object_answers_like_a_missing_one(cast: Cast, route: Route, verb: str) -> None:
    wrong = {}
    for column, sides in _questions(route, verb):
        mix = f"{column} {_named(sides)}"
        try:
            difference = _told_apart(cast, column, route, verb, sides)
        except Exception as error:
            error.add_note(f"asked for {mix}")
            raise
        if difference:
            wrong[mix] = difference
    assert not wrong


def _creates_by_name(route: Route, verb: str, sides: dict[str, str]) -> bool:
    """Whether the request makes an object of that name, which both tenants may have."""
    last = route.parameters[-1]
    is_named = verb == "PUT" and parameter_at(route, last).kind in NATURAL_KEYS
    # As MLflow's `register_model`: the first version makes the model, the first entry the storage.
    is_registered = verb == "POST" and route.template.endswith(
        ("/models/{model}/versions", "/optuna-storages/{storage}/log")
    )
    return (is_named or is_registered) and set(list(sides.values())[:-1]) == {"own"}


def _without_new_values(seen: Seen) -> Seen:
    """Leave out times, and the ids of objects that were created."""
    body = re.sub(r"20\d\d-[^\"]+|[a-z]+_01[0-9a-z]{24}", "", seen.body)
    return Seen(seen.status, seen.headers, body, seen.queries)


def test_over_all_routes_every_asker_asks_for_every_mix() -> None:
    """In the gate as well, for routes of the same number of parameters."""
    cases = [case.values for case in _cases()]
    tested = {
        (column, *sides.values())
        for route, verb in cases
        for column, sides in _questions(route, verb)
    }
    assert tested == {
        (column, *sides.values()) for route, _ in cases for column, sides in _pairs(route)
    }


def test_the_cases_cover_every_guarded_route_with_a_parameter() -> None:
    covered = {(case.values[0].template, case.values[1]) for case in _cases()}
    guarded = {
        (route.template, verb)
        for route in routes()
        for verb in route.methods
        if route.parameters and isinstance(route.policy_for(verb), _TENANTS)
    }
    assert guarded
    assert guarded <= covered


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tokens", {"name": "x", "scopes": ["projects:read"], "project": "{project}"}),
        ("projects", {"name": "x", "team": "{team}"}),
        ("projects/vision/jobs", {"snapshot": "{snapshot}", "script": "train.py"}),
    ],
)
def test_a_foreign_object_named_in_a_body_answers_like_a_missing_one(
    cast: Cast, path: str, body: dict[str, Any]
) -> None:
    missing = {"project": "no-such-project", "team": "no-such-team", "snapshot": "0" * 64}
    alice = Api.of(cast.world.people.alice)
    alice.get("whoami")  # the first use of a token is noted, and is one question more
    answers = []
    for names in (cast.world.foreign, missing):
        filled = {
            key: value.format(**names) if isinstance(value, str) else value
            for key, value in body.items()
        }
        with CaptureQueriesContext(connection) as captured:
            answer = alice.post(path, filled)
        # Numbers would be found in whatever else the answer says.
        named = [value for value in names.values() if not value.isdigit()]
        answers.append(_seen(answer, named, [query["sql"] for query in captured]))
    assert answers[0] == answers[1]
    assert answers[0].status in (404, 422)


def test_lists_never_hold_what_is_foreign(people: Personas) -> None:
    charlie = Api.of(people.charlie)
    for path in ("projects", "teams", "audit", "tokens", "projects?q=vision", "audit?actor=alice"):
        assert "vision" not in charlie.get(path).content.decode()
    listed = json_of(charlie.get("projects"))["items"]
    assert [project["slug"] for project in listed] == ["other"]


def test_a_filter_by_a_foreign_id_answers_like_one_by_a_missing_id(people: Personas) -> None:
    charlie = Api.of(people.charlie)
    for field in ("target_id", "actor"):
        foreign = charlie.get(f"audit?{field}={people.alice.pk}")
        missing = charlie.get(f"audit?{field}=usr_01j00000000000000000000000")
        assert json_of(foreign) == json_of(missing) == {"items": [], "next_cursor": None}
