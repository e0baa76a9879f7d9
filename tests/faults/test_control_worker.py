"""The control worker killed, frozen, doubled: nothing is lost, nothing is done twice."""

import os
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.processes import Installation, installation, wait_for

pytestmark = pytest.mark.integration


class _MailServer(socketserver.ThreadingTCPServer):
    """Takes mails by SMTP; holds the first one back until `release`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.attempts = 0
        self.taken: list[str] = []
        self.holds = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"


class _Conversation(socketserver.StreamRequestHandler):
    server: _MailServer

    def handle(self) -> None:
        self._say("220 ready")
        for line in self.rfile:
            verb = line.strip().upper()[:4]
            if verb == b"DATA":
                self._say("354 go on")
                self._take()
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 fine")

    def _take(self) -> None:
        subject = ""
        for line in self.rfile:
            if line.startswith(b"Subject: "):
                subject = line.decode().strip().removeprefix("Subject: ")
            if line == b".\r\n":
                break
        self.server.attempts += 1
        if self.server.attempts == 1:
            self.server.holds.set()
            self.server.released.wait(60)
            return
        self.server.taken.append(subject)
        self._say("250 taken")

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@pytest.fixture
def mail_server() -> Iterator[_MailServer]:
    with _MailServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


@pytest.fixture
def live_with_mail_server(tmp_path: Path, mail_server: _MailServer) -> Iterator[Live]:
    with installation(tmp_path) as place:
        slipway = Live(place)
        slipway.start(SLIPWAY_EMAIL_URL=mail_server.url)
        yield slipway


@pytest.mark.thorough
def test_a_worker_killed_while_it_sends_loses_no_mail(
    live_with_mail_server: Live, mail_server: _MailServer
) -> None:
    live = live_with_mail_server
    live.queue_mails(1)
    assert mail_server.holds.wait(15)
    killed = live.pid_of("control")
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: live.pid_of("control") not in (0, killed), "new worker", within_s=3)
    # The claim of the dead worker has to run out first, so that two never send the same mail.
    wait_for(lambda: mail_server.taken, "mail", within_s=50)
    assert mail_server.taken == ["Mail 0"]
    wait_for(
        lambda: live.sql("SELECT count(*) FROM accounts_outboxmail WHERE sent_at IS NOT NULL"),
        "mark that it left",
    )
    assert mail_server.attempts == 2


@pytest.mark.slow
def test_two_workers_send_every_mail_once(live: Live) -> None:
    live.another_control()
    live.queue_mails(60)
    live.queue_mails(60, "More")
    live.wait_for_mails(60, within_s=30)
    live.wait_for_mails(60, "More", within_s=30)


def test_when_the_leader_is_killed_another_leads_within_ten_seconds(live: Live) -> None:
    _, port = live.another_control()
    wait_for(lambda: live.beat_of() == "leads", "first leader")
    assert live.beat_of(port) == "is on standby"
    # Killed together with its supervisor, so that it does not come back.
    live.program.signal(signal.SIGKILL)
    wait_for(lambda: live.beat_of(port) == "leads", "second leader", within_s=10)


@pytest.mark.slow
def test_a_frozen_leader_is_followed_and_replaced(live: Live) -> None:
    _, port = live.another_control()
    wait_for(lambda: live.beat_of() == "leads", "first leader")
    live.signal("control", signal.SIGSTOP)
    wait_for(lambda: live.beat_of(port) == "leads", "second leader", within_s=10)
    live.queue_mails(3)
    live.wait_for_mails(3, within_s=15)
    wait_for(lambda: live.beat_of() == "is on standby", "another worker standing by", within_s=15)
    assert live.beat_of(port) == "leads"
    assert live.sql("SELECT epoch FROM config_leadership") == 2


@pytest.mark.thorough
def test_a_leader_that_stops_in_order_hands_over_at_once(live: Live) -> None:
    _, port = live.another_control()
    wait_for(lambda: live.beat_of() == "leads", "first leader")
    live.signal("control", signal.SIGTERM)
    wait_for(lambda: live.beat_of(port) == "leads", "second leader", within_s=4)


@pytest.mark.thorough
def test_a_worker_that_finds_its_health_port_taken_says_which_setting_to_change(
    tmp_path: Path,
) -> None:
    with installation(tmp_path) as place, socket.socket() as listener:
        listener.bind(("127.0.0.1", place.control_health_port))
        listener.listen()
        program = place.start("-m", "workers.control")
        assert program.wait(30) == 2
        assert "set SLIPWAY_CONTROL_HEALTH_PORT to a free one" in program.text()


def test_a_worker_with_wrong_settings_says_so_in_one_line(tmp_path: Path) -> None:
    place: Installation
    with installation(tmp_path) as place:
        program = place.start("-m", "workers.control", SLIPWAY_REDIS_PORT="many")
        assert program.wait(30) == 2
        assert program.text().count("\n") == 1
        assert "SLIPWAY_REDIS_PORT" in program.text()
