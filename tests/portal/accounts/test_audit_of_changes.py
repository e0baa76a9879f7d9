"""Every change leaves an event in the audit log, in its own transaction or not at all."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from portal.accounts.models import AuditEvent
from tests.matrix.actors import Cast
from tests.matrix.fixtures import _module_cast, cast
from tests.matrix.ready import make_ready
from tests.matrix.world import values_for
from tests.routes import Route, routes
from tests.turns import in_turns

__all__ = ["_module_cast", "cast"]
_DATASET = "/api/v1/projects/{project}/datasets/{dataset}"
_ON_NODES = "needs a node; see tests/integration/notebooks/test_workspace_files.py"
_NO_CLUSTER = "needs a cluster, and is audited: see tests/portal/training/test_dashboards.py"
_SHARED = "the view is shared already; see test_saved_views"
# Routes that take unsafe verbs and leave no event, and why that is right.
_BATCH = "/api/v1/projects/{project}/batch-predictions/{batch_prediction}"
UNAUDITED = {
    "/api/v1/": "answers 404",
    "/api/agent/v1/": "answers 404",
    "/api/agent/v1/join": "no person acts; see test_joining",
    "/api/agent/v1/heartbeat": "a machine says what it is, six times a minute",
    "/api/agent/v1/reports": "a machine says what it sees; the workload's story keeps it",
    "/api/agent/v1/logs/{task_id}/{epoch}/{rank}": "a machine says what it sees",
    "/api/agent/v1/checkpoints/{task_id}/{epoch}/{step}": "a machine keeps what a job has saved",
    "/api/agent/v1/environments/{digest}/reports": "a machine says what it sees",
    "/api/agent/v1/samples": "a machine says what it sees",
    "/api/agent/v1/file-requests/{request_id}/claim": "a machine does what a person asked",
    "/api/agent/v1/file-requests/{request_id}/reports": "a machine answers a person",
    "/api/v1/pools/{pool}/helper/take": "a program of the person asks for work all the time",
    "/api/v1/pools/{pool}/helper/requests/{helper_request}": "a program of the person answers",
    "/api/agent/v1/file-requests/{request_id}/content": "a machine sends what a person reads",
    "/api/v1/projects/{project}/jobs/{job}/shells/{shell}/input": "its opening is audited",
    "/api/v1/projects/{project}/jobs/{job}/shells/{shell}/size": "its opening is audited",
    "/api/v1/projects/{project}/jobs/{job}/dashboards": _NO_CLUSTER,
    "/api/v1/projects/{project}/notebooks/servers/{server}/dashboards": _NO_CLUSTER,
    "/p/{project}/jobs/{job}/dashboard": _NO_CLUSTER,
    "/p/{project}/notebooks/servers/{server}/dashboard": _NO_CLUSTER,
    "/api/v1/projects/{project}/workspace-files": _ON_NODES,
    "/api/v1/projects/{project}/workspace-files/content": _ON_NODES,
    "/api/v1/projects/{project}/workspace-files/folders": _ON_NODES,
    "/api/v1/projects/{project}/views/{view}/share": _SHARED,
    "/p/{project}/views/{view}/share": _SHARED,
    "/p/{project}/notebooks/workspace/folder": _ON_NODES,
    "/p/{project}/notebooks/workspace/move": _ON_NODES,
    "/p/{project}/notebooks/workspace/delete": _ON_NODES,
    "/p/{project}/notebooks/workspace/lab": "starts a server, which is audited",
    "/api/v1/pools/{pool}/account": "gives a command; the proof is audited when it is there",
    "/settings/pools/{pool}/account": "gives a command; the proof is audited when it is there",
    "/api/gateway/v1/": "answers 404",
    "/first-steps": "a choice about one's own Home",
    "/p/{project}/compare": "leads to the address of the selected runs",
    "/api/gateway/v1/reports": "a machine says what it sees",
    "/api/gateway/v1/replicas/{replica}/reports": "a machine says what it sees",
    "/api/hub/v1/": "answers 404",
    "/api/hub/v1/servers/{server}/start": "a machine speaks for the owner; see test_servers",
    "/api/hub/v1/servers/{server}/routed": "a machine says what it opened",
    "/api/hub/v1/servers/{server}/trouble": "a machine says what it could not open",
    "/api/hub/v1/labs/{server}/reports": "a machine says what it sees",
    "/api/v1/projects/{project}/notebooks/servers/quote": "reads",
    "/p/{project}/notebooks/quote": "reads",
    f"{_DATASET}/versions": "a draft; committing it is audited",
    f"{_DATASET}/pieces": "bytes of a draft",
    f"{_DATASET}/versions/{{version}}/files": "names in a draft",
    f"{_DATASET}/versions/{{version}}/append": "bytes of a draft",
    f"{_DATASET}/versions/{{version}}/uses": "what runs says what it reads; the version keeps it",
    "/p/{project}/datasets/{dataset}/begin": "a draft; committing it is audited",
    "/p/{project}/runs/{run}/file": "reads",
    "/api/v1/projects/{project}/endpoints/{endpoint}/try": "asks for a prediction",
    "/api/v1/projects/{project}/jobs/quote": "reads",
    "/p/{project}/jobs/quote": "reads",
    "/api/v1/projects/{project}/optuna-storages/{storage}/log": "a script logs; see optuna tests",
    "/p/{project}/sweeps/quote": "reads",
    "/p/{project}/batch-predictions/quote": "reads",
    "/api/v1/projects/{project}/batch-predictions/quote": "reads",
    f"{_BATCH}/output": "the job alone may; the commit of the version is audited",
    "/api/v1/projects/{project}/pipelines/plan": "reads",
    "/api/v1/projects/{project}/pipelines/jobs/{job}/outputs": "the job alone may",
    "/p/{project}/schedules/preview": "reads",
    "/api/v1/hooks/{hook}": "an event; what it starts is audited as the schedule's",
    "/api/v1/projects/{project}/schedules/preview": "reads",
    "/api/v1/projects/{project}/sweeps/quote": "reads",
    "/api/v1/projects/{project}/sweeps/{sweep}/repeats/quote": "reads",
    "/p/{project}/new-endpoint/quote": "reads",
    "/p/{project}/endpoints/{endpoint}/try": "asks for a prediction",
    "/p/{project}/notebooks/files/{notebook}/quote": "reads",
    "/p/{project}/endpoints/{endpoint}/monitoring/labels": "takes a file; see test_label_files",
    "/api/v1/projects/{project}/notebook-runs/{job}/output": "the job alone may; it keeps a file",
    "/api/v1/projects/{project}/notebook-runs/{job}/report": "the job alone may; see web tests",
    "/p/{project}/workloads/{workload}/stop": "leads to the page of a job, where it is stopped",
    "/account/login": "nobody has changed anything yet when one is signed in already",
    "/account/password/reset": "asking for a mail changes nothing",
    "/account/password/reset/key/{uidb36}-{key}": "the key in the matrix is no good",
    "/account/join": "open to the bearer of an invitation alone; see test_invitations",
    "/o/authorize/": "sign-in to a service; the sign-in itself is audited",
    "/o/token/": "the protocol's own exchange",
    "/o/revoke_token/": "the protocol's own exchange",
    "/o/userinfo/": "reads",
}
# Tables that note use or carry news, and are no changes a person makes.
_NOT_CHANGES = re.compile(
    r"session|cache|audit|idempotency|outbox|live|doorbell|outgoing|usersessions|apitoken|accounts_user$"
)


_ONE_IN = 6


def _changes() -> list[Any]:
    return [
        pytest.param(verb, route, id=f"{verb} {route.template}")
        for route in routes()
        for verb in ("POST", "PUT", "PATCH", "DELETE")
        if (route.operation(verb) or (not route.operations and verb == "POST"))
        and route.template not in UNAUDITED
    ]


def _address(change: Any) -> str:
    verb, route = change.values
    return f"{route.template} {verb}"


def _actor_for(cast: Cast, route: Route, verb: str) -> str:
    policy = route.policy_for(verb)
    return "adm" if policy is not None and "administrator" in policy.describe() else "own"


def _do(cast: Cast, verb: str, route: Route) -> int:
    values = values_for(route, cast.world.own)
    actor = cast.actor(_actor_for(cast, route, verb), route, verb)
    return cast.ask(actor, route, verb, values).status_code


@pytest.mark.parametrize(("verb", "route"), _changes())
def test_every_change_leaves_an_event(cast: Cast, verb: str, route: Route) -> None:
    make_ready(cast.world, route.template)
    before = AuditEvent.objects.count()
    status = _do(cast, verb, route)
    if status == 405 or (status == 404 and "content" in route.template):
        return
    assert 200 <= status < 400, status
    events = list(AuditEvent.objects.order_by("-pk")[: AuditEvent.objects.count() - before])
    assert events, "it changed something and left no event"
    for event in events:
        assert event.verb.count(".") == 1
        assert event.actor.endswith("@example.org")
        assert event.ip == "127.0.0.1"
        assert event.request_id
        assert event.target_kind
        assert event.target_id
        assert event.target_label


@contextmanager
def _audit_out_of_order() -> Iterator[None]:
    """Make the database refuse new audit events."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'no audit today'; END $$"
            )
            cursor.execute(
                "CREATE TRIGGER test_refuse BEFORE INSERT ON accounts_auditevent "
                "FOR EACH ROW EXECUTE FUNCTION test_refuse()"
            )
        else:
            cursor.execute(
                "CREATE TRIGGER test_refuse BEFORE INSERT ON accounts_auditevent "
                "BEGIN SELECT RAISE(ABORT, 'no audit today'); END"
            )
    yield
    with connection.cursor() as cursor:
        on = " ON accounts_auditevent" if connection.vendor == "postgresql" else ""
        cursor.execute(f"DROP TRIGGER test_refuse{on}")
        if connection.vendor == "postgresql":
            cursor.execute("DROP FUNCTION test_refuse()")


def _state() -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table that holds what people change."""
    rows = {}
    with connection.cursor() as cursor:
        for table in sorted(connection.introspection.table_names(cursor)):
            if not _NOT_CHANGES.search(table):
                cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608  (our own tables)
                rows[table] = sorted(map(str, cursor.fetchall()))
    return rows  # type: ignore[return-value]


# In the order of their addresses, so that those left out have neighbours that are tried.
@pytest.mark.parametrize(
    ("verb", "route"), in_turns(sorted(_changes(), key=_address), "audit", one_in=_ONE_IN)
)
def test_a_change_that_cannot_be_recorded_does_not_happen(
    cast: Cast, verb: str, route: Route
) -> None:
    make_ready(cast.world, route.template)
    before = _state()
    with _audit_out_of_order():
        try:
            with transaction.atomic():
                status = _do(cast, verb, route)
        except DatabaseError:
            status = 500
    assert status >= 400, status
    assert _state() == before
