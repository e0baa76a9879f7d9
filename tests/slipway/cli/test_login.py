"""`slipway login`, `logout`, `whoami`."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import slipway
from slipway.cli.login import DEFAULT_SCOPES, token_page
from slipway.schemas.accounts import Scope
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli


def test_signing_in_stores_the_token_for_its_owner_only(
    cli: Cli, portal: LivePortal, machine: Path
) -> None:
    ran = cli("login", portal.url + "/", "--token", "-", stdin=portal.tokens["alice"] + "\r\n")
    assert ran.code == 0
    assert "alice@example.org" in ran.err
    assert portal.tokens["alice"] not in ran.out + ran.err
    file = machine / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert portal.tokens["alice"] in file.read_text()
    assert cli("whoami", "-q").out == "alice@example.org\n"


def test_whoami_tells_who_where_and_what_for(alice: Cli, portal: LivePortal) -> None:
    fields = dict(alice("whoami").rows)
    assert fields["Server"] == portal.url
    assert fields["E-mail"] == "alice@example.org"
    assert fields["Administrator"] == "no"
    assert "projects:write" in fields["Scopes"]
    document = alice("whoami", "--json").document
    assert document["server"] == portal.url
    assert document["user"]["email"] == "alice@example.org"
    assert document["token"]["prefix"].startswith("slp_")


def test_a_wrong_token_is_not_stored(cli: Cli, portal: LivePortal, machine: Path) -> None:
    ran = cli("login", portal.url, "--token", "-", stdin="slp_" + "x" * 40)
    assert ran.code == 3
    assert "Next step:" in ran.err
    assert "Request id:" in ran.err
    assert not machine.exists()


def test_a_token_among_the_arguments_is_refused(cli: Cli, portal: LivePortal) -> None:
    ran = cli("login", portal.url, "--token", "slp_visible")
    assert ran.code == 2
    assert "can be read by other people" in ran.err
    assert "slp_visible" not in ran.err


def test_without_a_terminal_the_token_must_be_piped_in(cli: Cli, portal: LivePortal) -> None:
    ran = cli("login", portal.url)
    assert ran.code == 2
    assert "--token -" in ran.err
    assert cli("login", portal.url, "--token", "-", stdin="").code == 2


def test_without_a_server_it_says_how_to_name_one(cli: Cli) -> None:
    ran = cli("login", "--token", "-", stdin="slp_x")
    assert ran.code == 3
    assert "slipway login http://localhost:8000" in ran.err
    assert cli("login", "localhost:8000", "--token", "-", stdin="slp_x").code == 6


def test_several_servers_are_remembered_and_the_last_is_current(
    signed_in: Callable[[str], Cli], portal: LivePortal
) -> None:
    cli = signed_in("alice")
    other = portal.url.replace("127.0.0.1", "localhost")
    assert cli("login", other, "--token", "-", stdin=portal.tokens["bob"]).code == 0
    assert cli("whoami", "-q").out == "bob@example.org\n"
    assert cli("whoami", "-q", "--url", portal.url).out == "alice@example.org\n"
    assert cli("logout").code == 0
    assert cli("whoami", "-q").out == "alice@example.org\n"


def test_signing_out_forgets_the_token_and_keeps_it_valid_unless_told(
    alice: Cli, portal: LivePortal, machine: Path
) -> None:
    ran = alice("logout", "--json")
    assert ran.document == {"server": portal.url, "signed_out": True, "current": None}
    assert portal.tokens["alice"] not in (machine / "credentials.json").read_text()
    assert alice("whoami").code == 3
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        assert client.whoami().user.email == "alice@example.org"


def test_signing_out_can_revoke_the_token(cli: Cli, portal: LivePortal) -> None:
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        made = client.tokens.create("laptop", [Scope.TOKENS_WRITE])
    assert cli("login", portal.url, "--token", "-", stdin=made.token).code == 0
    ran = cli("logout", "--revoke")
    assert ran.code == 0
    assert "is revoked" in ran.err
    assert cli("login", portal.url, "--token", "-", stdin=made.token).code == 3


def test_signing_out_where_one_never_was_is_no_fault(cli: Cli) -> None:
    ran = cli("logout", "http://localhost:1", "--json")
    assert ran.code == 0
    assert ran.document["signed_out"] is False


def test_the_environment_stands_before_the_login(
    alice: Cli, portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOKEN", portal.tokens["bob"])
    assert alice("whoami", "-q").out == "bob@example.org\n"
    again = alice("login", portal.url, "--token", "-", stdin=portal.tokens["alice"])
    assert "still use SLIPWAY_TOKEN" in again.err
    monkeypatch.setenv("SLIPWAY_URL", "http://127.0.0.1:1")
    assert alice("whoami").code == 7


def test_the_page_for_a_token_is_filled_in_without_administration() -> None:
    page = token_page("https://slipway.example.org", None)
    assert page.startswith("https://slipway.example.org/settings/tokens/new?name=cli-")
    assert "projects%3Aread" in page
    assert Scope.ADMIN not in DEFAULT_SCOPES
    assert token_page("http://x", [Scope.AUDIT_READ]).endswith("&scopes=audit%3Aread")
