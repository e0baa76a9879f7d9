"""The portal answers at its configured addresses alone, and sends no link to another one."""

import re
import uuid
from http.client import HTTPConnection

import httpx
import pytest

from tests.portals import RunningPortal, running_portal
from tests.security.test_real_server import raw, refused, status_of
from tests.turns import thorough_after

_PASSWORD = "correct-horse-battery"
_FORM_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_LINKS = re.compile(r"https?://[^\s\"'<>]+")
_MAILS = (
    "import json; from portal.accounts.models import OutboxMail; "
    "print('mails ' + json.dumps([mail.body for mail in OutboxMail.objects.filter(to={to!r})]))"
)


def _with_form(portal: RunningPortal, path: str, fields: dict[str, str], host: str) -> int:
    """Send a form as a browser does that was told this host; returns the status."""
    origin = f"http://{host.lower()}"
    headers = {"Host": host, "Origin": origin, "Referer": f"{origin}{path}"}
    with httpx.Client(base_url=portal.url) as browser:
        page = browser.get(path)
        token = _FORM_TOKEN.search(page.text)
        assert token is not None, page.text
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
        headers |= {"Cookie": cookies}
        sent = httpx.post(
            portal.url + path, data=fields | {"csrfmiddlewaretoken": token[1]}, headers=headers
        )
    return sent.status_code


def _links_mailed_to(portal: RunningPortal, email: str) -> list[str]:
    shown = portal.installation.manage("shell", "--no-imports", "-c", _MAILS.format(to=email))
    assert shown.returncode == 0, shown.stderr
    return _LINKS.findall(shown.stdout)


@pytest.mark.parametrize(
    "stranger", thorough_after(1, ["127.0.0.1:{other}", "localhost:{other}", "evil.example"])
)
def test_a_reset_asked_under_a_foreign_address_mails_no_link_there(
    portal: RunningPortal, stranger: str
) -> None:
    """Another program of this machine has the host of the portal, and another port."""
    host = stranger.format(other=portal.installation.hub_port)
    _with_form(portal, "/account/password/reset", {"email": "charlie@example.org"}, host)
    foreign = [link for link in _links_mailed_to(portal, "charlie@example.org") if host in link]
    assert not foreign


@pytest.mark.parametrize("name", thorough_after(1, ["127.0.0.1", "localhost"]))
def test_a_reset_leads_to_the_public_address_whatever_address_it_was_asked_under(
    portal: RunningPortal, name: str
) -> None:
    at = portal.installation
    fields = {"email": "bob@example.org"}
    host = f"{name}:{at.portal_port}"
    assert _with_form(portal, "/account/password/reset", fields, host) == 302
    links = _links_mailed_to(portal, "bob@example.org")
    assert links
    assert all(link.startswith(f"http://localhost:{at.portal_port}/") for link in links), links


@pytest.mark.thorough
def test_failed_sign_ins_count_together_whatever_spelling_of_the_address(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("throttled")
    with running_portal(folder, SLIPWAY_LOGIN_FAILURES_PER_5_MINUTES="3") as portal:
        port = portal.installation.portal_port
        fields = {"login": "alice@example.org", "password": "wrong-battery-staple"}
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"LOCALHOST:{port}"):
            assert _with_form(portal, "/account/login", fields, host) == 200
        right = fields | {"password": _PASSWORD}
        assert _with_form(portal, "/account/login", right, f"localhost:{port}") == 200, "signed in"


def _status(portal: RunningPortal, *lines: str, target: str = "/healthz") -> int:
    head = [f"GET {target} HTTP/1.1", "Connection: close", *lines]
    return status_of(raw(portal, ("\r\n".join(head) + "\r\n\r\n").encode("latin1")))


@pytest.mark.parametrize(
    "host",
    [
        *("localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LocalHost:{port}"),
        *("localhost.:{port}", "[0:0:0:0:0:0:0:1]:{port}"),
    ],
)
def test_every_spelling_of_its_own_address_is_accepted(portal: RunningPortal, host: str) -> None:
    assert _status(portal, f"Host: {host.format(port=portal.installation.portal_port)}") == 200


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/whoami", "/account/login", "/mlflow/", "/"])
@pytest.mark.parametrize(
    "host", ["localhost:{other}", "127.0.0.1:{other}", "localhost", "127.0.0.1", "127.0.0.2:{port}"]
)
def test_another_port_of_this_machine_is_a_stranger(
    portal: RunningPortal, host: str, path: str
) -> None:
    at = portal.installation
    address = host.format(port=at.portal_port, other=at.hub_port)
    answer = httpx.get(portal.url + path, headers={"Host": address})
    assert answer.status_code == 421
    problem = refused(answer)
    assert problem.code == "misdirected_request"
    assert f"http://localhost:{at.portal_port}" in problem.detail
    assert "SLIPWAY_ALLOWED_HOSTS" in str(problem.next_step)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((), id="none"),
        pytest.param(("Host: localhost:{port}", "Host: localhost:{port}"), id="two"),
        pytest.param(("Host: localhost:{port}", "Host: evil.example"), id="two that differ"),
        pytest.param(("Host: localhost:{port}, evil.example",), id="list"),
        pytest.param(("Host: localhost:0{port}0",), id="no port"),
        pytest.param(("Host: localhost:",), id="empty port"),
        pytest.param(("Host: alice@localhost:{port}",), id="user"),
        pytest.param(("Host: localhost:{port}/x",), id="path"),
        pytest.param(("Host: [::1%25lo]:{port}",), id="zone"),
        pytest.param(("Host: localhost..:{port}",), id="two dots"),
        pytest.param(("Host: l\xf6calhost:{port}",), id="not ASCII"),
    ],
)
def test_a_malformed_host_is_refused(portal: RunningPortal, lines: tuple[str, ...]) -> None:
    port = portal.installation.portal_port
    assert _status(portal, *(line.format(port=port) for line in lines)) == 400


def test_a_request_target_with_a_host_of_its_own_is_refused(portal: RunningPortal) -> None:
    host = f"Host: localhost:{portal.installation.portal_port}"
    assert _status(portal, host, target="http://evil.example/healthz") == 400
    assert _status(portal, host, target=f"http://{host[6:]}/healthz") == 400
    assert _status(portal, host, target="/healthz") == 200


@pytest.mark.thorough
def test_a_name_of_the_operator_is_accepted_at_the_port_of_the_portal(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    names = "ml.example.org, tunnel.example.org:9000, .team.example.org"
    folder = tmp_path_factory.mktemp("named")
    with running_portal(folder, SLIPWAY_ALLOWED_HOSTS=names) as portal:
        port = portal.installation.portal_port
        for host in (f"ml.example.org:{port}", "tunnel.example.org:9000"):
            assert _status(portal, f"Host: {host}") == 200, host
        assert _status(portal, f"Host: a.team.example.org:{port}") == 200
        for host in (
            "ml.example.org:9000",
            f"tunnel.example.org:{port}",
            f"x.ml.example.org:{port}",
        ):
            assert _status(portal, f"Host: {host}") == 421, host


@pytest.mark.thorough
def test_behind_a_proxy_both_hosts_count(proxied: RunningPortal) -> None:
    inner = f"Host: 127.0.0.1:{proxied.installation.portal_port}"
    good = "X-Forwarded-Host: slipway.example.org"
    assert _status(proxied, inner, good) == 200
    assert _status(proxied, "Host: slipway.example.org", good) == 200
    assert _status(proxied, "Host: slipway.example.org") == 200
    assert _status(proxied, "Host: slipway.example.org:443") == 200
    assert _status(proxied, "Host: slipway.example.org:80") == 421
    assert _status(proxied, "Host: evil.example", good) == 421
    assert _status(proxied, inner, "X-Forwarded-Host: evil.example") == 421
    assert _status(proxied, inner, "X-Forwarded-Host: slipway.example.org:8443") == 421
    # Each proxy may add the host that it saw.
    assert _status(proxied, inner, f"{good}, slipway.example.org") == 200
    assert _status(proxied, inner, f"{good}, evil.example") == 421


def test_a_forwarded_host_is_not_read_without_a_proxy(portal: RunningPortal) -> None:
    host = f"Host: localhost:{portal.installation.portal_port}"
    assert _status(portal, host, "X-Forwarded-Host: evil.example") == 200
    assert _status(portal, "Host: evil.example", f"X-Forwarded-{host}") == 421


@pytest.mark.thorough
def test_a_document_and_a_redirect_name_the_public_address(proxied: RunningPortal) -> None:
    """What a client reads of addresses is the same at each of them."""
    inner = f"127.0.0.1:{proxied.installation.portal_port}"
    connection = HTTPConnection(inner)
    connection.request("GET", "/o/.well-known/openid-configuration")
    text = connection.getresponse().read().decode()
    assert inner not in text
    assert "https://slipway.example.org/o/token/" in text
    mark = f"n{uuid.uuid4().hex[:12]}"
    with proxied.client("alice") as alice:
        alice.post("/projects", json={"name": mark}).raise_for_status()
        invited = {"email": f"{mark}@example.org", "role": "viewer"}
        link = alice.post(f"/projects/{mark}/invitations", json=invited).json()["link"]
        listed = alice.get("/projects", params={"limit": 1})
    assert link.startswith("https://slipway.example.org/")
    assert inner not in listed.text
    assert "link" not in listed.headers


def _cookies_of(portal: RunningPortal, **headers: str) -> dict[str, list[str]]:
    """Return the attributes of each cookie that the sign-in page and a sign-in set."""
    path = "/account/login"
    with httpx.Client(base_url=portal.url, headers=headers) as browser:
        page = browser.get(path)
        token = _FORM_TOKEN.search(page.text)
        assert token is not None
        lines = page.headers.get_list("set-cookie")
        own = "; ".join(line.partition(";")[0] for line in lines)
        fields = {"login": "alice@example.org", "password": _PASSWORD}
        entered = browser.post(
            path,
            data=fields | {"csrfmiddlewaretoken": token[1]},
            headers={"Cookie": own, "Referer": "https://slipway.example.org/"},
        )
        assert entered.status_code == 302
        lines += entered.headers.get_list("set-cookie")
    parts = [[part.strip() for part in line.split(";")] for line in lines]
    return {first.partition("=")[0]: attributes for first, *attributes in parts}


def test_cookies_go_to_the_portals_host_alone(
    portal: RunningPortal, proxied: RunningPortal
) -> None:
    plain = _cookies_of(portal)
    with_tls = _cookies_of(proxied, Host="slipway.example.org", **{"X-Forwarded-Proto": "https"})
    assert set(plain) == {"slipway_session", "slipway_csrf"}
    assert set(with_tls) == {"__Host-slipway_session", "__Host-slipway_csrf"}
    for name, attributes in [*plain.items(), *with_tls.items()]:
        assert {"Path=/", "HttpOnly", "SameSite=Lax"} <= set(attributes), name
        assert not any(part.lower().startswith("domain") for part in attributes), name
        assert ("Secure" in attributes) == name.startswith("__Host-"), name
