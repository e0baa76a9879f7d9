"""The same Idempotency-Key gives the same result, once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse

from portal.accounts.gates import Administrator
from portal.accounts.models import AuditEvent, Membership, Project
from portal.api.models import IdempotencyRecord
from portal.core import clock
from tests.matrix.actors import Cast
from tests.matrix.bodies import BODIES, body_for, query_for
from tests.matrix.fixtures import _module_cast, cast, people
from tests.matrix.ready import make_ready
from tests.matrix.world import values_for
from tests.personas import Api, Personas, json_of, make_token
from tests.routes import Route, routes
from tests.security.problems import refusal

__all__ = ["_module_cast", "cast", "people"]


# tests/integration/notebooks/test_workspace_files.py has an agent.
_ANSWERED_BY_AN_AGENT = ("/workspace-files/content",)
# The work of the matrix forms no cluster. tests/portal/training/test_dashboards.py opens them.
_NEED_A_CLUSTER = ("/dashboards",)


def _posts() -> list[Any]:
    return [
        pytest.param(route, id=route.template)
        for route in routes()
        if route.operation("POST")
        and route.template.startswith("/api/v1/")
        and not route.template.endswith((*_ANSWERED_BY_AN_AGENT, *_NEED_A_CLUSTER))
    ]


def _post(api: Api, cast: Cast, route: Route, key: str) -> HttpResponse:
    path = route.path(**values_for(route, cast.world.own)) + query_for("POST", route.template)
    body = body_for("POST", route.template, cast.world, cast.world.people.alice)
    headers = {"Content-Type": "application/octet-stream"} if isinstance(body, bytes) else {}
    return api.post(path.removeprefix("/api/v1/"), body or None, key=key, **headers)


@pytest.mark.parametrize("route", _posts())
def test_every_post_gives_the_same_result_for_the_same_key(cast: Cast, route: Route) -> None:
    people = cast.world.people
    asker = people.root if isinstance(route.policy_for("POST"), Administrator) else people.alice
    api = Api.of(asker)
    make_ready(cast.world, route.template)
    first = _post(api, cast, route, "one")
    effects = AuditEvent.objects.count()
    second = _post(api, cast, route, "one")
    assert 200 <= first.status_code < 300
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    # The same bytes are the same ones without a key.
    if not route.template.endswith(("/snapshots", "/pieces", "/append", "/notebook-files")):
        assert second.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert AuditEvent.objects.count() == effects


def test_a_key_with_another_body_is_refused(people: Personas) -> None:
    alice = Api.of(people.alice)
    assert alice.post("projects", {"name": "A"}, key="k").status_code == 201
    problem = refusal(alice.post("projects", {"name": "B"}, key="k"))
    assert (problem.code, problem.status) == ("idempotency_key_reused", 422)
    assert refusal(alice.post("teams", {"name": "A"}, key="k")).status == 422
    assert Project.objects.filter(name="B").count() == 0


def test_the_key_of_another_person_is_another_key(people: Personas) -> None:
    slugs = {
        json_of(Api.of(user).post("projects", {"name": "Mine"}, key="k"))["id"]
        for user in (people.alice, people.bob)
    }
    assert len(slugs) == 2


def test_a_refused_request_leaves_its_key_free(people: Personas) -> None:
    alice = Api.of(people.alice)
    assert alice.post("projects", {"name": ""}, key="k").status_code == 422
    assert IdempotencyRecord.objects.count() == 0
    assert alice.post("projects", {"name": "Good"}, key="k").status_code == 201


def test_a_request_that_failed_half_way_is_undone_with_its_key(people: Personas) -> None:
    alice = Api.of(people.alice)
    body = {"name": "Taken", "slug": "vision"}
    assert alice.post("projects", body, key="k").status_code == 409
    assert IdempotencyRecord.objects.count() == 0


@pytest.mark.parametrize("key", ["", "a b", "k" * 129, "k\x7f", "ключ"])
def test_a_malformed_key_is_refused(people: Personas, key: str) -> None:
    token = make_token(people.alice)
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer {token}"}
    problem = refusal(Api().call("POST", "projects", {"name": "X"}, **headers))
    assert problem.field == "Idempotency-Key"


def test_a_key_is_forgotten_after_a_day(people: Personas) -> None:
    alice = Api.of(people.alice)
    first = json_of(alice.post("projects", {"name": "A"}, key="k"))
    with clock.frozen(clock.now() + timedelta(hours=24, minutes=1)):
        second = json_of(alice.post("projects", {"name": "A"}, key="k"))
    assert first["id"] != second["id"]


def test_an_answer_is_not_given_again_to_somebody_who_has_lost_access(people: Personas) -> None:
    mia = Api.of(people.mia)
    body = {"email": "new@example.org", "role": "viewer"}
    assert mia.post("projects/vision/invitations", body, key="k").status_code == 201
    Membership.objects.filter(user=people.mia).delete()
    answer = mia.post("projects/vision/invitations", body, key="k")
    assert refusal(answer).status == 404


def test_an_answer_is_not_given_again_to_a_forged_request(people: Personas) -> None:
    api = Api()
    api.client = type(api.client)(enforce_csrf_checks=True)
    api.client.force_login(people.alice)
    assert api.post("projects", {"name": "A"}, key="k").status_code == 403
    trusted = Api()
    trusted.client.force_login(people.alice)
    assert trusted.post("projects", {"name": "A"}, key="k").status_code == 201
    assert api.post("projects", {"name": "A"}, key="k").status_code == 403


def _everything_stored() -> str:
    """Return the content of every table, as text and as bytes decoded leniently."""
    lines = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608  (our own tables)
            for row in cursor.fetchall():
                lines += [
                    bytes(cell).decode("latin1")
                    if isinstance(cell, bytes | memoryview | bytearray)
                    else str(cell)
                    for cell in row
                ]
    return "\n".join(lines)


def test_a_secret_shown_once_is_given_again_and_stands_nowhere_in_the_clear(
    people: Personas,
) -> None:
    alice = Api.of(people.alice)
    body = {"name": "ci", "scopes": ["projects:read"]}
    first, second = (json_of(alice.post("tokens", body, key="k"))["token"] for _ in range(2))
    assert first == second
    assert Api(first).get("projects").status_code == 200
    invited = {"email": "new@example.org", "role": "viewer"}
    alice.post("projects/vision/invitations", invited, key="i")
    alice.put("projects/vision/secrets/DB", {"value": "hush-hush-value"})
    stored = _everything_stored()
    assert first not in stored
    assert "hush-hush-value" not in stored
    assert len(stored) > 1_000


def test_every_post_operation_has_a_body_in_the_matrix() -> None:
    bodiless: tuple[str, ...] = (
        "/restore",
        "/jobs/{job}/cancel",
        "/jobs/{job}/resume",
        "/jobs/{job}/dashboards",
        "/servers/{server}/dashboards",
        "/nodes/{node}/uncordon",
    )
    bodiless += ("/trash/empty", "/endpoints/{endpoint}/resume")
    bodiless += ("/named-environments/{environment}/archive",)
    bodiless += ("/named-environments/{environment}/versions/{number}/build",)
    bodiless += ("/reports/{report}/share", "/servers/{server}/start")
    bodiless += ("/notebooks/servers/{server}/stop",)
    bodiless += ("/notebooks/servers/{server}/key", "/undelete")
    bodiless += tuple(f"/sweeps/{{sweep}}/{verb}" for verb in ("pause", "resume", "stop"))
    bodiless += tuple(f"/schedules/{{schedule}}/{verb}" for verb in ("pause", "resume", "run"))
    bodiless += ("/schedules/{schedule}/hook",)
    bodiless += tuple(f"/runs/{{pipeline_run}}/{verb}" for verb in ("cancel", "resume"))
    bodiless += ("/file-requests/{request_id}/claim", "/views/{view}/share")
    bodiless += ("/pools/{pool}/account",)
    bodiless += tuple(f"/service-accounts/{{account}}/{verb}" for verb in ("disable", "enable"))
    bodiless += ("/gateway/v1/reports", "/replicas/{replica}/reports")  # told by machines
    missing = [
        route.template
        for route in routes()
        if route.operation("POST")
        and ("POST", route.template) not in BODIES
        and not route.template.endswith(bodiless)
    ]
    assert not missing
