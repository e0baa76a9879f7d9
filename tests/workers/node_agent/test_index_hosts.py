"""Hosts that a build may reach: what pip is told, what indexes name, and public addresses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from workers.node_agent.errors import StartError
from workers.node_agent.index_hosts import HostPort, allowed_hosts

INDEX = "index-url"
PAGES = "find-links"
# Addresses, so that no test asks a name server.
PUBLIC = "1.1.1.1"
OTHER = "9.9.9.9"


@pytest.fixture
def index() -> Iterator[str]:
    """An index on this machine whose page names file hosts: public ones, and this machine's."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """One page of links as HTML, one as JSON."""
            if self.path == "/packages/light-house/":
                kind = "text/html"
                page = (
                    f"<a href='https://{PUBLIC}/files/a.whl'>a</a> <a href='/here.whl'>b</a>"
                    "<a href='http://127.0.0.1:9/steal'>c</a> <a href='https://192.0.2.1/x'>d</a>"
                )
            else:
                kind = "application/vnd.pypi.simple.v1+json"
                page = json.dumps({"files": [{"url": f"https://{OTHER}:8443/b.whl"}]})
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/packages"
    server.shutdown()
    thread.join()
    server.server_close()


def test_folders_need_no_host() -> None:
    settings = {"no-index": "1", PAGES: "/srv/wheels file:///srv/more"}
    assert allowed_hosts(settings, "lighthouse\n", {}) == ()


def test_an_index_and_the_public_hosts_that_its_pages_name(index: str) -> None:
    port = int(index.rpartition(":")[2].partition("/")[0])
    hosts = allowed_hosts({INDEX: index}, "Light_House==1.0\nbeacon\n", {})
    own = HostPort("127.0.0.1", port)
    # No page opens another port of this machine, or of its network.
    assert [place for place in hosts if place.host == "127.0.0.1"] == [own]
    assert HostPort(PUBLIC, 443) in hosts
    assert HostPort(OTHER, 8443) in hosts
    assert not {place for place in hosts if place.host.startswith("192.")}


def test_an_address_of_a_requirement_is_reached() -> None:
    requirements = (
        f"pkg @ https://{PUBLIC}:8443/pkg.whl\nrepo @ git+https://{OTHER}/r.git@v1 ; x == 'y'\n"
    )
    hosts = allowed_hosts({"no-index": "yes"}, requirements, {})
    assert hosts == (HostPort(PUBLIC, 8443), HostPort(OTHER, 443))


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "10.0.0.1", "192.168.1.1", "169.254.169.254"),
        *("[::]", "[::ffff:127.0.0.1]", "[fe80::1]", "100.64.0.1", "224.0.0.1"),
        *("name.invalid", "2130706433", "0x7f.1", "user:secret@127.0.0.1"),
    ],
)
def test_an_address_that_is_not_public_is_refused(host: str) -> None:
    with pytest.raises(StartError, match="Use an address on the public network") as refused:
        allowed_hosts({"no-index": "1"}, f"pkg @ https://{host}/pkg.whl\n", {})
    assert "secret" not in str(refused.value)


def test_a_host_that_the_node_names_itself_is_trusted() -> None:
    settings = {"no-index": "1", PAGES: "https://127.0.0.1:1/wheels"}
    hosts = allowed_hosts(settings, "pkg @ https://127.0.0.1:1/pkg.whl\n", {})
    assert hosts == (HostPort("127.0.0.1", 1),)


def test_a_proxy_is_reached_in_place_of_all_that_it_serves() -> None:
    settings = {"no-index": "1", PAGES: "https://127.0.0.1:1/wheels"}
    requirements = f"pkg @ https://{PUBLIC}/pkg.whl\n"
    variables = {"HTTPS_PROXY": "http://proxy.invalid:3128", "no_proxy": "127.0.0.1"}
    hosts = allowed_hosts(settings, requirements, variables)
    assert hosts == (HostPort("127.0.0.1", 1), HostPort("proxy.invalid", 3128))
    by_setting = allowed_hosts({"no-index": "1", "proxy": "proxy.invalid:81"}, requirements, {})
    assert by_setting == (HostPort("proxy.invalid", 81),)
    # What only the proxy can resolve passes, but no address of this network.
    assert allowed_hosts({"no-index": "1"}, "pkg @ https://name.invalid/p.whl\n", variables)
    with pytest.raises(StartError, match="not on the public network"):
        allowed_hosts({"no-index": "1"}, "pkg @ https://192.0.2.1/p.whl\n", variables)


def test_without_settings_the_index_is_that_of_pip() -> None:
    hosts = allowed_hosts({}, "", {})
    assert len(hosts) == 2
    assert {place.port for place in hosts} == {443}
