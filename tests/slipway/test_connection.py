"""What is sent, what is sent again, and what an answer becomes."""

import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import slipway
from slipway import errors
from slipway.connection import address

TOKEN = "slp_secret-secret-secret"
QUICK = slipway.Retries(first_wait_s=0.001)
WHOAMI = {
    "user": {"id": "u1", "email": "ada@example.org", "name": "Ada"},
    "is_administrator": False,
}
PROJECT = {
    "id": "p1",
    "slug": "churn",
    "name": "Churn",
    "description": "",
    "created_at": "2026-11-20T12:00:00Z",
}
Step = httpx.Response | Exception


class Script:
    """A server that gives the next answer of a list, and remembers what it was asked."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    @property
    def headers(self) -> list[httpx.Headers]:
        return [request.headers for request in self.requests]


def client_of(script: Callable[[httpx.Request], httpx.Response], **changes: Any) -> slipway.Client:
    changes = {"retries": QUICK} | changes
    transport = httpx.MockTransport(script)
    return slipway.Client("http://portal.test/", TOKEN, transport=transport, **changes)


def problem(status: int, **headers: str) -> httpx.Response:
    body = {"type": "x", "title": "No", "status": status, "detail": "No.", "code": "no"}
    kind = {"Content-Type": "application/problem+json"}
    return httpx.Response(status, json=body, headers=kind | headers)


def ok(body: object = WHOAMI, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def test_a_request_carries_the_token_the_version_and_an_id() -> None:
    script = Script(ok())
    client_of(script).whoami()
    request = script.requests[0]
    assert str(request.url) == "http://portal.test/api/v1/whoami"
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["User-Agent"].startswith(f"slipway/{slipway.__version__} python/3.")
    assert request.headers["X-Request-Id"].startswith("sdk-")
    assert "Idempotency-Key" not in request.headers


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        problem(429, **{"Retry-After": "0"}),
        problem(502),
        problem(503),
        problem(504),
    ],
)
def test_a_read_is_sent_again_after_a_passing_failure(failure: Step) -> None:
    script = Script(failure, ok())
    assert client_of(script).whoami().user.email == "ada@example.org"
    assert len(script.requests) == 2
    assert script.headers[0]["X-Request-Id"] == script.headers[1]["X-Request-Id"]


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), problem(503), problem(429)])
def test_a_creation_is_sent_again_with_the_same_key(failure: Step) -> None:
    script = Script(failure, ok(PROJECT, 201), ok(PROJECT, 201))
    client = client_of(script)
    client.projects.create("Churn")
    client.projects.create("Churn")
    first, again, other = (headers["Idempotency-Key"] for headers in script.headers)
    assert first == again != other
    assert script.requests[0].content == script.requests[1].content == b'{"name":"Churn"}'


def test_a_change_whose_answer_was_lost_is_not_sent_again() -> None:
    for failure in (httpx.ReadTimeout("slow"), problem(503)):
        script = Script(failure)
        with pytest.raises(errors.Unavailable):
            client_of(script).projects.edit("churn", name="New")
        assert len(script.requests) == 1


def test_a_change_that_was_never_taken_is_sent_again() -> None:
    for failure in (httpx.ConnectError("refused"), problem(429)):
        script = Script(failure, ok(PROJECT))
        assert client_of(script).projects.edit("churn", name="New").slug == "churn"


def test_a_deletion_whose_answer_was_lost_counts_as_done_when_the_object_is_gone() -> None:
    client_of(Script(httpx.ReadTimeout("slow"), problem(404))).tokens.revoke("t1")
    with pytest.raises(errors.NotFound):
        client_of(Script(problem(404))).tokens.revoke("t1")
    with pytest.raises(errors.NotFound):
        client_of(Script(httpx.ConnectError("refused"), problem(404))).tokens.revoke("t1")


def test_the_number_of_attempts_is_bounded() -> None:
    script = Script(*[problem(503) for _ in range(10)])
    with pytest.raises(errors.Unavailable):
        client_of(script).whoami()
    assert len(script.requests) == 4
    script = Script(*[httpx.ConnectError("refused") for _ in range(10)])
    with pytest.raises(errors.ConnectionFailed) as caught:
        client_of(script, retries=slipway.Retries(attempts=2, first_wait_s=0)).whoami()
    assert len(script.requests) == 2
    assert caught.value.request_id == script.headers[0]["X-Request-Id"]


def test_a_wait_that_is_too_long_is_told_instead_of_waited_for() -> None:
    script = Script(problem(429, **{"Retry-After": "3600"}))
    with pytest.raises(errors.RateLimited) as caught:
        client_of(script).whoami()
    assert caught.value.retry_after_s == 3600


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_a_refusal_is_not_repeated(status: int) -> None:
    script = Script(problem(status))
    with pytest.raises(errors.SlipwayError) as caught:
        client_of(script).whoami()
    assert len(script.requests) == 1
    assert caught.value.status == status


def test_a_redirect_is_not_followed_with_the_token() -> None:
    script = Script(httpx.Response(301, headers={"Location": "https://evil.test/api/v1/whoami"}))
    with pytest.raises(errors.UnexpectedAnswer, match="redirect"):
        client_of(script).whoami()
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, html="<h1>Welcome to nginx</h1>"),
        httpx.Response(200, json={"user": f"{TOKEN}"}),
        httpx.Response(200, json=[1, 2]),
        httpx.Response(200, content=b"\xff\xfe", headers={"Content-Type": "application/json"}),
        httpx.Response(200, content=b"x", headers={"Content-Encoding": "gzip"}),
        httpx.Response(404, html="<h1>Not found</h1>"),
        httpx.Response(404, json={"message": "no such page"}),
    ],
)
def test_what_is_no_slipway_server_is_told_without_its_words(answer: httpx.Response) -> None:
    with pytest.raises(errors.UnexpectedAnswer) as caught:
        client_of(Script(answer)).whoami()
    assert "nginx" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_a_name_that_would_change_the_path_is_refused(segment: str) -> None:
    script = Script()
    with pytest.raises(errors.InvalidInput):
        client_of(script).projects.archive(segment)
    assert script.requests == []


def test_a_name_stays_one_segment_of_the_path() -> None:
    assert address("projects", "../tokens", "a/b?c#d") == "/projects/..%2Ftokens/a%2Fb%3Fc%23d"
    script = Script(ok(PROJECT))
    client_of(script).projects.get("../tokens")
    assert script.requests[0].url.raw_path == b"/api/v1/projects/..%2Ftokens"


def test_a_request_that_cannot_be_right_is_not_sent() -> None:
    script = Script()
    client = client_of(script)
    with pytest.raises(errors.InvalidInput) as caught:
        client.projects.create("", slug="Not a slug")
    assert {fault.field for fault in caught.value.errors} == {"name", "slug"}
    with pytest.raises(errors.InvalidInput):
        client.members.list()
    with pytest.raises(errors.InvalidInput):
        client.members.list(project="a", team="b")
    assert script.requests == []


def test_a_refused_secret_is_not_in_its_error() -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        client_of(Script()).secrets.set("KEY", "hunter2" * 10_000, project="churn")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_token_is_in_no_log_no_error_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = client_of(Script(ok(), problem(401)))
    client.whoami()
    with pytest.raises(errors.Unauthenticated) as caught:
        client.whoami()
    assert TOKEN not in repr(client)
    assert TOKEN not in f"{caught.value!r} {caught.value}"
    assert TOKEN not in caplog.text


def test_what_holds_a_secret_does_not_show_it() -> None:
    made = {
        "id": "t1",
        "name": "ci",
        "prefix": "slp_abc",
        "scopes": ["projects:read"],
        "created_at": "2026-11-20T12:00:00Z",
        "token": TOKEN,
    }
    token = client_of(Script(ok(made, 201))).tokens.create("ci", ["projects:read"])
    assert token.token == TOKEN
    assert TOKEN not in repr(token)
