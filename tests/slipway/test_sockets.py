"""The SDK against real sockets that misbehave."""

import socket
import threading
import time

import pytest

import slipway
from slipway import errors
from tests.slipway.servers import Answer, answer_json, cut_in_the_middle, serve

QUICK = slipway.Retries(attempts=2, first_wait_s=0.01)
WHOAMI = {
    "user": {"id": "u1", "email": "ada@example.org", "name": "Ada"},
    "is_administrator": False,
}


def test_nobody_listening_is_a_failed_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        slipway.Client(url, "slp_x", retries=QUICK) as client,
        pytest.raises(errors.ConnectionFailed, match="cannot be reached") as caught,
    ):
        client.whoami()
    assert caught.value.next_step


def test_a_name_that_does_not_resolve_is_a_failed_connection() -> None:
    with (
        slipway.Client("http://no-such-host.invalid", "slp_x", retries=QUICK) as client,
        pytest.raises(errors.ConnectionFailed),
    ):
        client.whoami()


def test_a_server_that_takes_the_call_and_says_nothing_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        started = time.monotonic()
        with (
            slipway.Client(url, "slp_x", timeout_s=0.2, retries=QUICK) as client,
            pytest.raises(errors.ConnectionFailed, match="in time"),
        ):
            client.whoami()
    assert time.monotonic() - started < 2


def test_a_connection_that_broke_once_is_made_again() -> None:
    answers: list[Answer] = [cut_in_the_middle, answer_json(WHOAMI)]
    with (
        serve(lambda method, path: answers.pop(0)) as url,
        slipway.Client(url, "slp_x", retries=QUICK) as client,
    ):
        assert client.whoami().user.name == "Ada"
    assert answers == []


def test_the_wait_a_server_asks_for_is_kept() -> None:
    problem = {"type": "x", "title": "x", "status": 429, "detail": "x", "code": "rate_limited"}
    answers = [answer_json(problem, 429, **{"Retry-After": "1"}), answer_json(WHOAMI)]
    with (
        serve(lambda method, path: answers.pop(0)) as url,
        slipway.Client(url, "slp_x", retries=QUICK) as client,
    ):
        started = time.monotonic()
        client.whoami()
    assert 1.0 <= time.monotonic() - started < 2.0


def test_an_export_that_is_cut_off_is_not_taken_for_whole() -> None:
    received: list[bytes] = []
    with (
        serve(lambda method, path: cut_in_the_middle) as url,
        slipway.Client(url, "slp_x", retries=QUICK) as client,
        client.audit.export() as export,
    ):
        assert export.size_bytes == 100
        with pytest.raises(errors.ConnectionFailed, match="broke"):
            received.extend(export)
    assert b"".join(received) == b"0123456789"


def test_a_client_can_be_shared_by_threads() -> None:
    with (
        serve(lambda method, path: answer_json(WHOAMI)) as url,
        slipway.Client(url, "slp_x", retries=QUICK) as client,
    ):
        names: list[str] = []
        threads = [
            threading.Thread(target=lambda: names.append(client.whoami().user.name))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert names == ["Ada"] * 8
