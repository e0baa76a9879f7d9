"""The authorisation matrix: every caller, every route, every verb, against a reviewed table."""

from collections import Counter
from functools import cache
from itertools import product
from zlib import crc32

import pytest
from django.db import transaction

from portal.accounts.gates import Administrator, ProjectRole, SignedIn, TeamRole
from portal.compute.gates import NodeToken
from portal.endpoints.gates import EndpointRole, GatewayToken, ReplicaToken
from portal.workloads.gates import WorkloadRole
from tests.matrix import table
from tests.matrix.actors import COLUMNS, TO_SIGN_IN, Cast, cell_of
from tests.matrix.world import values_for
from tests.routes import VERBS, Route, routes
from tests.turns import asked_all, in_turns

_measured: table.Table = {}
_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_PROJECTS = ProjectRole | WorkloadRole | EndpointRole
_SHUT = frozenset({"401", "403", "404", "405", TO_SIGN_IN})


# Asked for every operation: its owner, a member of another tenant, and nobody signed in.
_ALWAYS = ("own", "oth", "ano")
_ONE_IN = 6
# Fewer operations than this may leave a caller out.
_OFTEN = 20
# In the gate one route in so many is asked an undeclared verb, one page in so many HEAD, OPTIONS.
_ROUTES_PER_TURN = 2
_PAGES_PER_VERB = 5
_UNDECLARED_ASKERS = tuple(column for column in COLUMNS if column != "csf")


def measure(cast: Cast, route: Route, *, everybody: bool) -> table.Table:
    """Ask a route in the name of everybody, or of those whose turn it is.

    The cells of callers whose turn it is not are those of the reviewed table, where it has the row.

    A verb that nobody declared is refused before anybody looks who asks, so it is asked in the
    name of two: a forger (whom the guard against forgery may meet first), and one who changes from
    route to route and from verb to verb. Where these do not all hear 405, everybody is asked. HEAD
    and OPTIONS of a page are asked in the same way, and by the owner: those three have to hear what
    they hear of GET, and of OPTIONS 405 where GET is answered. Pages of which the table says
    something else are asked in the name of everybody.

    The gate asks these verbs of some routes, and over all routes all of them of everybody.
    """
    answers: table.Table = {}
    left_out = frozenset() if everybody else _left_out(route)
    for verb in VERBS:
        if verb in left_out and (route.template, verb) in table.read():
            answers[route.template, verb] = table.read()[route.template, verb]
            continue
        if verb in ("HEAD", "OPTIONS") and not route.operations:
            answers_to_get = _as_get(answers[route.template, "GET"], verb)
            few = _asked(cast, route, verb, ("own", *_few(route, verb)))
            is_usual = answers_to_get == table.read().get((route.template, verb))
            if is_usual and few == {column: answers_to_get[column] for column in few}:
                answers[route.template, verb] = answers_to_get
                continue
        if _is_undeclared(route, verb):
            few = _asked(cast, route, verb, _few(route, verb))
            if {few[column] for column in few if column != "csf"} == {"405"}:
                answers[route.template, verb] = dict.fromkeys(COLUMNS, "405") | few
                continue
        reviewed = table.read().get((route.template, verb), {})
        columns = tuple(COLUMNS)
        if not everybody and set(reviewed) == set(COLUMNS):
            columns = _in_turn(route, verb)
        answers[route.template, verb] = reviewed | _asked(cast, route, verb, columns)
    return answers


def _in_turn(route: Route, verb: str) -> tuple[str, ...]:
    """Return who asks an operation in the gate; `make test-slow` asks in the name of everybody."""
    others = [column for column in COLUMNS if column not in _ALWAYS]
    return (*_ALWAYS, *in_turns(others, f"{verb} {route.template}", one_in=_ONE_IN))


def _left_out(route: Route) -> frozenset[str]:
    """Return the verbs that the gate does not ask of a route, as it asks others like them."""
    alike = [verb for verb in VERBS if _is_undeclared(route, verb)]
    if not route.operations:
        turn = crc32(route.template.encode()) % _PAGES_PER_VERB
        alike += [verb for at, verb in enumerate(("HEAD", "OPTIONS")) if turn != at]
    return frozenset(verb for verb in alike if (route.template, verb) not in _turns())


@cache
def _turns() -> dict[tuple[str, str], str]:
    """Return the undeclared verb that the gate asks of every second route, and in whose name."""
    counts: Counter[str] = Counter()
    turns = {}
    for route in routes():
        undeclared = [verb for verb in VERBS if _is_undeclared(route, verb)]
        if undeclared and not crc32(route.template.encode()) % _ROUTES_PER_TURN:
            verb = min(undeclared, key=lambda verb: counts[verb])
            turns[route.template, verb] = _UNDECLARED_ASKERS[counts[verb] % len(_UNDECLARED_ASKERS)]
            counts[verb] += 1
    return turns


def _as_get(row: table.Row, verb: str) -> table.Row:
    """Return what a page is expected to say to HEAD or OPTIONS, by what it says to GET."""
    if verb == "HEAD":
        return row
    return {column: cell if cell in _SHUT else "405" for column, cell in row.items()}


def _asked(cast: Cast, route: Route, verb: str, columns: tuple[str, ...]) -> table.Row:
    """Ask in the name of some columns; each question is undone before the next."""
    values = values_for(route, cast.world.own)
    row: table.Row = {}
    for column in columns:
        actor = cast.actor(column, route, verb)
        with transaction.atomic(), transaction.atomic(using="tracking"):
            row[column] = cell_of(cast.ask(actor, route, verb, values))
            transaction.set_rollback(True)
            transaction.set_rollback(True, using="tracking")
    return row


def _is_undeclared(route: Route, verb: str) -> bool:
    """Whether no operation takes the verb, or the route is a page and it is none of a page's."""
    if route.operations:
        return route.operation(verb) is None
    return not route.is_api and verb in ("PUT", "PATCH", "DELETE")


def _few(route: Route, verb: str) -> tuple[str, ...]:
    """Return who asks with an undeclared verb; over all routes everybody does, with every verb."""
    turn = crc32(f"{verb} {route.template}".encode()) % len(_UNDECLARED_ASKERS)
    return ("csf", _turns().get((route.template, verb), _UNDECLARED_ASKERS[turn]))


@pytest.mark.parametrize("route", routes(), ids=lambda route: route.template)
def test_every_verb_answers_every_caller_as_reviewed(
    cast: Cast, route: Route, refresh: bool
) -> None:
    answers = measure(cast, route, everybody=refresh or asked_all())
    faults = [fault for key, row in answers.items() for fault in faults_of(route, key[1], row)]
    assert not faults
    if refresh:
        _measured.update(answers)
        return
    stored = table.read()
    wrong = [
        f"{verb} {template} for {COLUMNS[column]}: {cell}, not {expected}"
        for (template, verb), row in answers.items()
        for column, cell in row.items()
        if (expected := stored.get((template, verb), {}).get(column, "in the table")) != cell
    ]
    assert not wrong, f"mend the route, or run `{table.REFRESH}` and review the change"


def faults_of(route: Route, verb: str, row: table.Row) -> list[str]:
    """What no row may say, whatever the table says."""
    policy = route.policy_for(verb)
    faults = [
        f"{column} is {cell}" for column, cell in row.items() if cell >= "500" and cell.isdigit()
    ]
    if route.operations and route.operation(verb) is None and set(row.values()) != {"405"}:
        faults.append("a verb nobody declared must be refused to all alike")
    if not route.is_api and verb in ("PUT", "PATCH", "DELETE") and not set(row.values()) <= _SHUT:
        faults.append("a page takes GET, HEAD, OPTIONS and POST alone")
    if route.operation(verb) is not None and row["own"] == "422":
        faults.append("add a valid body to tests/matrix/bodies.py")
    if isinstance(policy, SignedIn | Administrator | TeamRole | _OF_PROJECTS):
        faults += [
            f"{COLUMNS[column]} passes with {row[column]}"
            for column in ("ano", "exp", "rev", "sus")
            if row[column] not in _SHUT
        ]
        if verb in _UNSAFE and row["csf"] not in _SHUT:
            faults.append("a forged request from a browser passes")
        if getattr(policy, "scope", None) is not None and row["scp"] not in _SHUT:
            faults.append("a token passes without the scope")
    if isinstance(policy, TeamRole | _OF_PROJECTS) and not {row["oth"], row["adm"]} <= {
        "404",
        "405",
    }:
        faults.append("somebody who is no member learns that the object exists")
    if isinstance(policy, _OF_PROJECTS) and row["cnf"] not in ("404", "405", TO_SIGN_IN):
        faults.append("a token confined to another project gets in")
    if isinstance(policy, Administrator) and row["own"] not in ("403", "405"):
        faults.append("somebody who is no administrator gets in")
    if isinstance(policy, NodeToken | GatewayToken | ReplicaToken):
        machines = ("nod", "nda") if isinstance(policy, NodeToken) else ()
        faults += [
            f"{COLUMNS[column]} passes with {row[column]}"
            for column in COLUMNS
            if column not in machines and row[column] not in _SHUT
        ]
    elif isinstance(policy, SignedIn | Administrator | TeamRole | _OF_PROJECTS):
        faults += [
            f"{COLUMNS[column]} passes with {row[column]}"
            for column in ("nod", "nda")
            if row[column] not in _SHUT
        ]
    return [f"{verb} {route.template}: {fault}" for fault in faults]


def test_the_table_speaks_of_the_routes_there_are_and_no_others(
    refresh: bool, request: pytest.FixtureRequest
) -> None:
    expected = [(route.template, verb) for route in routes() for verb in VERBS]
    if refresh:
        assert not hasattr(request.config, "workerinput"), "refresh without -n"
        known = table.read() | _measured
        table.FILE.write_text(
            table.written({key: known[key] for key in expected}), encoding="utf-8"
        )
    stored = table.read()
    assert not [key for key in expected if key not in stored], "routes without a line"
    assert not [key for key in stored if key not in set(expected)], "lines without a route"


def test_every_caller_is_refused_every_verb_that_somewhere_nobody_declared() -> None:
    covered = {
        (column, verb)
        for route in routes()
        for verb in VERBS
        if _is_undeclared(route, verb) and verb not in _left_out(route)
        for column in _few(route, verb)
    }
    undeclared = {verb for route in routes() for verb in VERBS if _is_undeclared(route, verb)}
    assert covered == {(column, verb) for column in COLUMNS for verb in undeclared}


def test_every_caller_asks_every_verb_and_every_kind_of_policy() -> None:
    operations = [
        (route, verb)
        for route in routes()
        for verb in VERBS
        if not _is_undeclared(route, verb) and route.policy_for(verb) is not None
    ]
    for kind_of in (
        lambda route, verb: verb,
        lambda route, verb: type(route.policy_for(verb)).__name__,
    ):
        kinds = Counter(kind_of(route, verb) for route, verb in operations)
        covered = {
            (kind_of(route, verb), column)
            for route, verb in operations
            for column in _in_turn(route, verb)
        }
        often = [kind for kind, count in kinds.items() if count >= _OFTEN]
        assert often
        assert covered >= set(product(often, COLUMNS))


def test_a_row_that_lets_a_stranger_in_is_found() -> None:
    guarded = next(route for route in routes() if route.template == "/api/v1/projects/{project}")
    row = dict.fromkeys(COLUMNS, "404")
    assert not faults_of(guarded, "GET", row)
    assert faults_of(guarded, "GET", row | {"oth": "200"})
    assert faults_of(guarded, "GET", row | {"oth": "403"})
    assert faults_of(guarded, "GET", row | {"sus": "200"})
    assert faults_of(guarded, "PATCH", row | {"csf": "200"})
    assert faults_of(guarded, "PATCH", row | {"own": "500"})
