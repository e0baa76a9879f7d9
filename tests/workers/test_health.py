"""The health door of processes that have no other."""

from collections.abc import Iterator

import httpx
import pytest

from workers.health import LOOPBACK_ONLY, ROUTES, Check, HealthServer


class Part:
    """Something whose health the test decides."""

    def __init__(self) -> None:
        self.found = Check(True, "answers")

    def __call__(self) -> Check:
        return self.found


@pytest.fixture
def part() -> Part:
    return Part()


@pytest.fixture
def door(part: Part) -> Iterator[httpx.Client]:
    server = HealthServer(0, {"part": part})
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client
    server.stop()


def test_every_route_declares_that_it_is_for_this_machine_alone() -> None:
    assert {route.path: route.policy for route in ROUTES} == {
        "/healthz": LOOPBACK_ONLY,
        "/readyz": LOOPBACK_ONLY,
        "/metrics": LOOPBACK_ONLY,
    }


def test_it_listens_on_loopback_alone() -> None:
    server = HealthServer(0, {})
    assert server._server.server_address[0] == "127.0.0.1"
    server._server.server_close()


def test_ready_follows_the_checks_and_says_which_one_failed(door: httpx.Client, part: Part) -> None:
    answer = door.get("/readyz")
    assert answer.status_code == 200
    part.found = Check(False, "does not answer")
    answer = door.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "checks": {"part": {"ok": False, "detail": "does not answer"}},
    }
    assert door.get("/healthz").status_code == 200


def test_metrics_are_in_the_format_of_prometheus(door: httpx.Client) -> None:
    answer = door.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "python_info" in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:{port}", 200), ("127.0.0.1:{port}", 200), ("[::1]:{port}", 200)),
        *(("LOCALHOST:{port}", 200), ("localhost", 421), ("127.0.0.1:9000", 421)),
        *(("evil.example", 421), ("evil.example:{port}", 421)),
    ],
)
def test_a_web_page_under_another_name_cannot_read_it(
    door: httpx.Client, host: str, status: int
) -> None:
    told = host.format(port=door.base_url.port)
    assert door.get("/metrics", headers={"Host": told}).status_code == status


def test_other_addresses_do_not_exist(door: httpx.Client) -> None:
    assert door.get("/admin").status_code == 404
    assert door.post("/readyz").status_code == 501
