"""Redis emptied, frozen, killed: no work is lost, and no request waits for it."""

import signal
import time

import httpx
import pytest
import redis

from tests.faults.live import Live
from tests.processes import wait_for

pytestmark = pytest.mark.integration


def _reset_password(live: Live, browser: httpx.Client) -> float:
    """Ask for a password-reset mail, which rings; returns the seconds the answer took."""
    page = f"{live.url}/account/password/reset"
    token = browser.get(page).text.partition('name="csrfmiddlewaretoken" value="')[2][:64]
    began = time.monotonic()
    answer = browser.post(
        page,
        data={"csrfmiddlewaretoken": token, "email": "admin@localhost"},
        headers={"Referer": page},
        timeout=30,
    )
    assert answer.status_code == 302, answer.text
    return time.monotonic() - began


@pytest.mark.thorough
def test_doorbells_that_vanish_cost_seconds_and_no_mail(live: Live) -> None:
    with live.frozen("control"):  # so that the rings stay in Redis
        live.queue_mails(20)
        client = live.redis()
        # The stopped worker was waiting for a message: Redis gave it the first one, unread.
        assert client.llen("control") >= 19
        client.flushall()
        assert client.llen("control") == 0
    live.wait_for_mails(20, within_s=15)


@pytest.mark.thorough
def test_a_frozen_redis_hangs_no_request_and_holds_up_no_mail(live: Live) -> None:
    with httpx.Client() as browser:
        usual = max(_reset_password(live, browser) for _ in range(3))
        with live.frozen("redis"):
            took = [_reset_password(live, browser) for _ in range(6)]
            live.queue_mails(5, "Frozen")
            live.wait_for_mails(5, "Frozen", within_s=20)
    _only_one_found_out(took, usual)
    live.queue_mails(5, "Thawed")
    live.wait_for_mails(5, "Thawed", within_s=20)


@pytest.mark.thorough
def test_a_frozen_redis_hangs_no_request_of_the_api(live: Live) -> None:
    """The rate limit asks Redis too, so a request may find out twice."""
    with live.api() as api:
        usual = max(_invite(api, f"usual-{number}") for number in range(3))
        with live.frozen("redis"):
            took = [_invite(api, f"frozen-{number}") for number in range(6)]
    _only_one_found_out(took, usual)


def _invite(api: httpx.Client, name: str) -> float:
    """Invite somebody, which rings for the mail; returns the seconds the answer took."""
    began = time.monotonic()
    body = {"email": f"{name}@example.org", "role": "viewer"}
    answer = api.post("/projects/vision/invitations", json=body)
    assert answer.status_code == 201, answer.text
    return time.monotonic() - began


def _only_one_found_out(took: list[float], usual: float) -> None:
    """Nobody waited two seconds for Redis, and after the first nearly nobody waited at all."""
    waited = [seconds - usual for seconds in took]
    assert max(waited) < 2, took
    assert sum(seconds > 0.6 for seconds in waited) <= 2, took


@pytest.mark.slow
def test_after_a_thaw_doorbells_are_heard_again_and_not_only_the_sweep(live: Live) -> None:
    with live.frozen("redis"):
        time.sleep(8)  # longer than every timeout on the way
    before = live.tasks_run("accounts.deliver_due_mail")
    live.queue_mails(30)
    # The sweep runs once in five seconds; only doorbells make it thirty.
    wait_for(
        lambda: live.tasks_run("accounts.deliver_due_mail") >= before + 30,
        "thirty doorbells heard",
        within_s=40,
    )


def test_a_killed_redis_is_back_and_no_mail_is_lost(live: Live) -> None:
    live.signal("control", signal.SIGSTOP)
    live.queue_mails(10)
    live.signal("redis", signal.SIGKILL)
    live.program.wait_for_text("redis ready again", within_s=5)
    live.signal("control", signal.SIGCONT)
    live.wait_for_mails(10, within_s=20)


@pytest.mark.thorough
def test_a_doorbell_leaves_nothing_behind_in_redis(live: Live) -> None:
    live.queue_mails(10)
    live.wait_for_mails(10, within_s=15)
    client = live.redis()
    wait_for(lambda: client.llen("control") == 0 and client.hlen("unacked") == 0, "empty queue")
    left = {key.decode() for key in client.scan_iter() if not key.startswith(b"_kombu.binding")}
    assert left <= {"unacked_mutex"}


@pytest.mark.slow
def test_redis_wants_a_password(live: Live) -> None:
    stranger = redis.Redis(port=live.place.redis_port)
    try:
        stranger.ping()
    except redis.AuthenticationError:
        return
    raise AssertionError("Redis answered a stranger")
