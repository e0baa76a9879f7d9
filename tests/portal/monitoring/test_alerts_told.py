"""Where alerts are told: signed, and to nothing inside a network, however it is named."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from typing import Any

import httpx
import pytest

from portal.monitoring.adapters import webhooks
from portal.monitoring.adapters.webhooks import NotDelivered, WebhookRefused, is_public, post
from portal.monitoring.alert_delivery import deliver_pending
from portal.monitoring.alerting import AlertReason, raise_alert
from portal.monitoring.models import AlertChannel, AlertDelivery
from tests.personas import Api, Personas, json_of
from tests.portal.monitoring.captured import Traffic

pytestmark = pytest.mark.postgres

_INSIDE = "10.0.0.8"


class _Ear(HTTPServer):
    """A server on loopback that keeps what it hears and answers as it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Answer(BaseHTTPRequestHandler):
    server: _Ear

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((dict(self.headers), body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "http://127.0.0.1:9/inside")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def ear(settings: Any) -> Iterator[_Ear]:
    """A webhook inside, which who runs the installation allows."""
    server = _Ear()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    settings.SLIPWAY_WEBHOOK_HOSTS = frozenset({f"127.0.0.1:{server.server_port}"})
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/hook",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        *(f"https://{host}/" for host in ("10.0.0.8", "192.168.1.1", "172.16.0.1")),
        "https://169.254.169.254/latest/meta-data/",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://[::1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://user:secret@example.org/",
        "https://example.org/#part",
        "https://example.org\\@127.0.0.1/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https:///nothing",
        "https://example.org:99999/",
    ],
)
def test_addresses_inside_are_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        webhooks.checked(url)


def test_public_addresses_are_public() -> None:
    assert is_public(ip_address("93.184.215.14"))
    assert is_public(ip_address("2606:4700:4700::1111"))
    assert not is_public(ip_address("2001::7f00:1"))


def _names(*answers: str) -> Iterator[list[object]]:
    for address in answers:
        yield [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]


def test_a_name_that_leads_inside_is_refused_and_rebinding_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: next(_names(_INSIDE)))
    with pytest.raises(WebhookRefused, match="private network"):
        post("https://rebound.example.org/hook", b"{}", {})
    # Public when it is looked at, inside when it is asked again: it is not asked again.
    answers = _names("93.184.215.14", "127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: next(answers))
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200)

    post("https://rebound.example.org/hook?a=1", b"{}", {}, transport=httpx.MockTransport(answer))
    (request,) = requests
    assert request.url.host == "93.184.215.14"
    assert request.headers["Host"] == "rebound.example.org"
    assert request.extensions["sni_hostname"] == "rebound.example.org"
    mixed = [*next(_names("93.184.215.14")), *next(_names("127.0.0.1"))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: mixed)
    with pytest.raises(WebhookRefused, match="private network"):
        post("https://rebound.example.org/hook", b"{}", {})


def test_redirects_are_not_followed_and_failures_are_told(ear: _Ear) -> None:
    ear.status = 302
    with pytest.raises(WebhookRefused, match="redirect"):
        post(ear.url, b"{}", {})
    ear.status = 500
    with pytest.raises(NotDelivered, match="500"):
        post(ear.url, b"{}", {})
    assert len(ear.heard) == 2


def test_an_alert_for_somebody_who_left_is_counted_as_not_delivered(
    traffic: Traffic, people: Personas
) -> None:
    body = {"kind": "email", "target": people.vera.email}
    traffic.post("monitoring/channels", body, status=201)
    left = Api.of(people.alice).delete(f"projects/vision/members/{people.vera.pk}")
    assert left.status_code == 204
    raise_alert(traffic.endpoint, AlertReason("errors", "9 of 10 failed"))
    deliver_pending()
    by_target = {item["target"]: item for item in traffic.get("monitoring/channels")}
    channel = by_target[people.vera.email]
    assert channel["undelivered"] == 1
    assert "the address no longer belongs to a member of the project" in channel["last_error"]
    assert {item["undelivered"] for item in by_target.values()} == {0, 1}


def test_a_webhook_is_told_once_and_can_prove_who_sent_it(traffic: Traffic, ear: _Ear) -> None:
    made = traffic.post("monitoring/channels", {"kind": "webhook", "target": ear.url}, status=201)
    slack = traffic.post("monitoring/channels", {"kind": "slack", "target": ear.url}, status=201)
    assert made["secret"]
    assert slack["secret"] == ""
    refused = traffic.api.post(
        f"{traffic.root}/monitoring/channels", {"kind": "webhook", "target": f"https://{_INSIDE}/"}
    )
    assert (refused.status_code, json_of(refused)["code"]) == (422, "webhook_refused")
    stranger = {"kind": "email", "target": "charlie@example.org"}
    refused = traffic.api.post(f"{traffic.root}/monitoring/channels", stranger)
    assert (refused.status_code, json_of(refused)["code"]) == (422, "no_member")
    finding = AlertReason("errors", "9 of 10 failed <b>&")
    raise_alert(traffic.endpoint, finding)
    raise_alert(traffic.endpoint, finding)
    assert AlertDelivery.objects.count() == 3
    assert deliver_pending() == 3
    assert deliver_pending() == 0
    bodies = {json.loads(body).get("news", "slack"): (head, body) for head, body in ear.heard}
    head, body = bodies["firing"]
    signed = head["X-Slipway-Timestamp"].encode() + b"." + body
    expected = hmac.new(made["secret"].encode(), signed, hashlib.sha256).hexdigest()
    assert head["X-Slipway-Signature"] == f"sha256={expected}"
    assert json.loads(body)["reason"] == "9 of 10 failed <b>&"
    assert "9 of 10 failed &lt;b&gt;&amp;" in json.loads(bodies["slack"][1])["text"]
    listed = traffic.get("monitoring/channels")
    assert [channel["kind"] for channel in listed] == ["email", "webhook", "slack"]
    assert "secret" not in listed[1]
    gone = traffic.api.call("DELETE", f"{traffic.root}/monitoring/channels/{made['id']}")
    assert gone.status_code == 204
    assert AlertChannel.objects.count() == 2
