"""What only a real server can show: bodies as they arrive, raw paths, headers, proxies."""

import json
import socket
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from slipway.schemas.problem import Problem
from tests.portals import RunningPortal
from tests.security.problems import problem_of

LIMIT = 1024 * 1024


def raw(portal: RunningPortal, request: bytes, *, rest: Iterable[bytes] = ()) -> bytes:
    """Send bytes as they are; return all that comes back until the server closes."""
    with socket.create_connection(portal.address, timeout=20) as connection:
        connection.sendall(request)
        try:
            for piece in rest:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        received = b""
        try:
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass
        return received


def status_of(answer: bytes) -> int:
    """Return the status in a raw answer."""
    return int(answer.split(b" ", 2)[1])


def refused(answer: httpx.Response) -> Problem:
    """Return the problem in an answer."""
    return problem_of(answer.status_code, answer.headers["content-type"], answer.content)


def _head(portal: RunningPortal, verb: str, path: str, *headers: str) -> bytes:
    lines = [
        f"{verb} {path} HTTP/1.1",
        f"Host: localhost:{portal.installation.portal_port}",
        f"Authorization: Bearer {portal.tokens['alice']}",
        "Connection: close",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin1")


def test_a_body_declared_over_the_limit_is_refused_before_it_is_sent(
    portal: RunningPortal,
) -> None:
    head = _head(
        portal,
        "POST",
        "/api/v1/projects",
        "Content-Type: application/json",
        f"Content-Length: {LIMIT + 1}",
    )
    answer = raw(portal, head)
    assert status_of(answer) == 413
    problem_of(413, "application/problem+json", answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream", "x/y"])
@pytest.mark.parametrize("path", ["/api/v1/projects", "/account/login", "/", "/nowhere"])
def test_a_chunked_body_over_the_limit_is_refused_while_it_is_sent(
    portal: RunningPortal, content_type: str, path: str
) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(LIMIT // 65_536 + 64):
            yield b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        yield b"0\r\n\r\n"

    head = _head(
        portal, "POST", path, f"Content-Type: {content_type}", "Transfer-Encoding: chunked"
    )
    answer = raw(portal, head, rest=chunks())
    assert status_of(answer) == 413
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "too_large"


def test_a_body_at_the_limit_is_read(portal: RunningPortal) -> None:
    with portal.client("alice") as alice:
        filler = " " * (LIMIT - len('{"name":""}'))
        answer = alice.post("/projects", content='{"name":""' + filler + "}")
        assert refused(answer).field == "name"


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/projects/%2e%2e/users",
        "/api/v1/projects/..%2fusers",
        "/api/v1/projects/../users",
        "/api/v1//projects",
        "//api/v1/projects",
        "/api/v1/projects;x=1",
        "/api/v1/projects/a%00b",
        "/api/v1/projects/%ff",
        "/api/v1/projects/%",
        "/api/v1/projects/%zz",
        "/api/v1/projects\\..\\users",
        "/api/v1/projects/" + "a" * 60_000,
        "http://evil.example/api/v1/users",
        "*",
    ],
)
def test_a_trick_in_the_path_leads_nowhere(portal: RunningPortal, target: str) -> None:
    answer = raw(portal, _head(portal, "GET", target))
    assert 400 <= status_of(answer) < 500, answer[:300]


@pytest.mark.parametrize(
    "header",
    [
        "Content-Length: -1",
        "Content-Length: 99999999999999999999999",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity, chunked, x",
        "X-Long: " + "a" * 200_000,
        "Content-Type: \xff\xfe",
        "Content-Type: application/json; charset=zlib",
        "Content-Type: application/json; charset=" + "x" * 5_000,
        "Content-Type: multipart/form-data; boundary=" + "x" * 5_000,
        "Cookie: slipway_session=" + "a" * 4_000,
        "Cookie: slipway_session=\xff; slipway_csrf=\xff",
        "Accept: \xff",
        "Accept-Language: " + "a," * 5_000,
        "Idempotency-Key: " + "k" * 129,
        "Idempotency-Key: a b",
        "Idempotency-Key: \xff",
        "Idempotency-Key:",
        "Host: evil.example",
        "Range: bytes=0-0,0-0,0-0",
        "If-None-Match: *",
        "If-Modified-Since: 99999",
        "X-HTTP-Method-Override: DELETE",
        "HX-Request: true",
    ],
)
def test_a_strange_header_never_breaks_the_portal(portal: RunningPortal, header: str) -> None:
    answer = raw(portal, _head(portal, "POST", "/api/v1/projects", header))
    assert 400 <= status_of(answer) < 500, answer[:500]


def test_two_requests_hidden_in_one_are_answered_as_two(portal: RunningPortal) -> None:
    """A body both counted and chunked is refused, so no proxy in front can be made to disagree."""
    host = f"Host: localhost:{portal.installation.portal_port}"
    smuggled = f"GET /api/v1/whoami HTTP/1.1\r\n{host}\r\n\r\n".encode()
    head = _head(
        portal,
        "POST",
        "/api/v1/projects",
        "Content-Type: application/json",
        f"Content-Length: {5 + len(smuggled)}",
        "Transfer-Encoding: chunked",
    )
    answer = raw(portal, head + b"0\r\n\r\n" + smuggled)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 400


def test_a_header_written_with_underscores_is_not_the_one_with_hyphens(
    portal: RunningPortal,
) -> None:
    with portal.client() as nobody:
        answer = nobody.get("/whoami", headers={"AUTHORIZATION_": "x", "X_Request_Id": "spoofed-1"})
    assert answer.status_code == 401
    assert answer.headers["X-Request-Id"] != "spoofed-1"
    with portal.client("alice") as alice:
        sent = {"Idempotency_Key": "one"}
        slugs = {
            alice.post("/projects", json={"name": "U"}, headers=sent).json()["slug"]
            for _ in range(2)
        }
    assert len(slugs) == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abcdefgh", True),
        ("0af7651916cd43dd8448eb211c80319c", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("short", False),
        ("with space", False),
        ("semi;colon", False),
        ("<script>alert(1)</script>", False),
        ("\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9", False),
    ],
)
def test_a_request_id_is_kept_only_when_it_is_well_formed(
    portal: RunningPortal, given: str, kept: bool
) -> None:
    with portal.client("alice") as alice:
        answer = alice.get("/whoami", headers=[(b"X-Request-Id", given.encode("latin1"))])
    assert (answer.headers["X-Request-Id"] == given) is kept
    assert len(answer.headers["X-Request-Id"]) >= 8


def _last_address(portal: RunningPortal, **headers: str) -> str | None:
    """Return the address under which the audit log keeps a change sent with these headers."""
    mark = f"addr-{uuid.uuid4().hex[:12]}"
    with portal.client("alice", **headers) as alice:
        made = alice.post("/projects", json={"name": mark})
        assert made.status_code == 201, made.text
        events = alice.get("/audit", params={"target_id": made.json()["id"]}).json()["items"]
    ip: str | None = events[0]["ip"]
    return ip


def test_without_trusted_proxies_a_forwarded_address_is_not_believed(
    portal: RunningPortal,
) -> None:
    headers = {
        "X-Forwarded-For": "203.0.113.9",
        "Forwarded": "for=203.0.113.9",
        "X-Real-IP": "1.1.1.1",
    }
    assert _last_address(portal, **headers) == "127.0.0.1"
    assert _last_address(portal, X_Forwarded_For="203.0.113.9") == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("2001:db8::7, 10.0.0.1", "2001:db8::7"),
        ("[2001:db8::7]:4711, 10.0.0.1", "2001:db8::7"),
        ("203.0.113.9:4711, 10.0.0.1", "203.0.113.9"),
        ("203.0.113.9", "127.0.0.1"),
        ("rubbish, 10.0.0.1", "127.0.0.1"),
        ("", "127.0.0.1"),
        (", , ,", "127.0.0.1"),
        ("a" * 5_000, "127.0.0.1"),
    ],
)
def test_the_address_counted_from_the_right_by_trusted_proxies_is_believed(
    proxied: RunningPortal, forwarded: str, address: str
) -> None:
    assert _last_address(proxied, **{"X-Forwarded-For": forwarded}) == address


def test_a_forwarded_host_and_scheme_count_only_behind_trusted_proxies(
    portal: RunningPortal, proxied: RunningPortal
) -> None:
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    plain = httpx.get(f"{portal.url}/", headers=headers)
    assert plain.status_code == 302
    assert "evil" not in plain.headers["Location"]
    behind = httpx.get(f"{proxied.url}/account/login", headers=headers)
    assert behind.status_code == 421
    good = headers | {"X-Forwarded-Host": "slipway.example.org"}
    answer = httpx.get(f"{proxied.url}/account/login", headers=good)
    assert answer.status_code == 200
    assert all("Secure" in cookie for cookie in answer.headers.get_list("Set-Cookie"))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_answers_everybody(portal: RunningPortal, path: str) -> None:
    answer = httpx.get(portal.url + path)
    assert answer.status_code == 200
    assert answer.content


def test_metrics_need_their_token_also_on_this_machine(portal: RunningPortal) -> None:
    token = portal.installation.metrics_bearer["Authorization"]
    of_alice = f"Bearer {portal.tokens['alice']}"
    for headers in (
        {},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Authorization": f"{token}x"},
        {"Authorization": token.removeprefix("Bearer ")},
        {"Authorization_": token},
        {"Authorization": of_alice},
    ):
        answer = httpx.get(f"{portal.url}/metrics", headers=headers)
        assert answer.status_code in (302, 400, 401, 403), headers
        assert b"slipway_http" not in answer.content
    answer = httpx.get(f"{portal.url}/metrics", headers={"Authorization": token})
    assert answer.status_code == 200
    assert b"slipway_http" in answer.content


def test_metrics_count_requests_by_route_and_never_by_path(portal: RunningPortal) -> None:
    with portal.client("alice") as alice:
        alice.get("/projects/secret-project-name")
    bearer = portal.installation.metrics_bearer
    text = httpx.get(f"{portal.url}/metrics", headers=bearer).text
    assert 'route="api/v1/projects/<project>"' in text
    assert "secret-project-name" not in text


def test_a_host_we_do_not_answer_to_is_refused(portal: RunningPortal) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example"):
        answer = httpx.get(f"{portal.url}/api/v1/whoami", headers={"Host": host})
        assert answer.status_code == 421, host
        assert refused(answer).code == "misdirected_request"
    for host in ("[::1].x", ""):
        answer = httpx.get(f"{portal.url}/api/v1/whoami", headers={"Host": host})
        assert answer.status_code == 400, host


def _events(portal: RunningPortal) -> list[dict[str, Any]]:
    return [json.loads(line) for line in portal.log().splitlines() if line.startswith("{")]


def test_every_line_of_a_request_in_the_log_carries_its_id(portal: RunningPortal) -> None:
    request_id = f"trace-{uuid.uuid4().hex}"
    with portal.client("alice") as alice:
        answer = alice.get("/projects/none-such", headers={"X-Request-Id": request_id})
    assert answer.json()["request_id"] == request_id
    lines = [event for event in _events(portal) if event.get("request_id") == request_id]
    assert [line["status"] for line in lines if line["event"] == "request"] == [404]
    assert all(line["level"] and line["timestamp"] and line["logger"] for line in lines)


def test_what_is_secret_never_stands_in_the_log(portal: RunningPortal) -> None:
    with portal.client("alice") as alice:
        slug = alice.post("/projects", json={"name": "Masked"}).json()["slug"]
        alice.put(f"/projects/{slug}/secrets/DB_PASSWORD", json={"value": "hush-hush-value"})
        made = alice.post("/tokens", json={"name": "t", "scopes": ["projects:read"]}).json()
        alice.get(f"/projects/{made['token']}")
    with portal.client(Authorization=f"Bearer {made['token']}x") as wrong:
        wrong.get("/whoami")
    for path in (f"/invitations/{'i' * 40}", f"/account/password/reset/key/1-{'k' * 30}"):
        httpx.get(portal.url + path)
    httpx.get(f"{portal.url}/api/v1/files/x/content?link={'l' * 40}")
    log = portal.log()
    for secret in (
        "hush-hush-value",
        made["token"],
        portal.tokens["alice"],
        "i" * 40,
        "k" * 30,
        "l" * 40,
    ):
        assert secret not in log
