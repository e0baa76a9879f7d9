"""Requests of many clients at one moment, and how long each waited for its answer."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

# The promise is two seconds. The suites share two cores with others, which may add one.
WITHIN_S = 3.0


@dataclass(frozen=True)
class Reply:
    """One answer."""

    name: str
    status: int
    seconds: float
    retry_after: str
    text: str


def send(client: httpx.Client, method: str, path: str, **options: object) -> Reply:
    """Send one request."""
    began = time.monotonic()
    answer = client.request(method, path, **options)  # type: ignore[arg-type]
    return Reply(
        f"{method} {path}",
        answer.status_code,
        time.monotonic() - began,
        answer.headers.get("Retry-After", ""),
        answer.text,
    )


def create_projects(client: httpx.Client, count: int, prefix: str) -> list[Reply]:
    """Create that many projects at once."""
    with ThreadPoolExecutor(count) as threads:
        return list(
            threads.map(
                lambda number: send(
                    client, "POST", "/projects", json={"name": f"{prefix} {number}"}
                ),
                range(count),
            )
        )


def create_projects_until_refused(client: httpx.Client, count: int, prefix: str) -> list[Reply]:
    """Create projects, that many at once, until each of the creators is refused."""

    def create(creator: int) -> list[Reply]:
        replies: list[Reply] = []
        while not replies or replies[-1].status == 201:
            name = f"{prefix} {creator} {len(replies)}"
            replies.append(send(client, "POST", "/projects", json={"name": name}))
        return replies

    with ThreadPoolExecutor(count) as threads:
        return [reply for replies in threads.map(create, range(count)) for reply in replies]


def check_unavailable(replies: list[Reply]) -> None:
    """Fail unless each is a 503 in time that says when to come again."""
    for reply in replies:
        assert reply.status == 503, reply
        assert reply.retry_after, reply
        assert reply.seconds < WITHIN_S, reply
