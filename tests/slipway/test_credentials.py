"""Where the address and the token come from, and how the login file is kept."""

import json
import stat
from pathlib import Path

import pytest

import slipway
from slipway import errors
from slipway.credentials import (
    Logins,
    ServerLogin,
    chosen_token,
    chosen_url,
    clean_token,
    clean_url,
    credentials_path,
    default_project,
    read_logins,
    write_logins,
)

HERE, THERE = "http://localhost:8000", "https://slipway.example.org"


@pytest.fixture(autouse=True)
def _empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SLIPWAY_URL", "SLIPWAY_TOKEN", "SLIPWAY_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "config"))


def sign_in(current: str = HERE) -> None:
    servers = {
        HERE: ServerLogin(token="slp_here", email="a@example.org", project="churn"),
        THERE: ServerLogin(token="slp_there"),
    }
    write_logins(Logins(current=current, servers=servers))


def test_only_its_owner_can_read_the_login_file() -> None:
    sign_in()
    assert stat.S_IMODE(credentials_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(credentials_path().parent.stat().st_mode) == 0o700


def test_a_login_file_that_was_open_to_others_is_closed_when_written() -> None:
    sign_in()
    credentials_path().chmod(0o644)
    write_logins(read_logins())
    assert stat.S_IMODE(credentials_path().stat().st_mode) == 0o600
    assert [path.name for path in credentials_path().parent.iterdir()] == ["credentials.json"]


def test_without_a_login_the_next_step_is_to_sign_in() -> None:
    with pytest.raises(errors.NotLoggedIn) as caught:
        slipway.Client()
    assert "slipway login" in str(caught.value)
    with pytest.raises(errors.NotLoggedIn, match="not signed in to http://other"):
        slipway.Client("http://other")


def test_arguments_stand_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sign_in()
    assert (chosen_url(), chosen_token(HERE)) == (HERE, "slp_here")
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_environment")
    assert chosen_token(HERE) == "slp_environment"
    monkeypatch.setenv("SLIPWAY_URL", THERE + "/")
    assert chosen_url() == THERE
    assert chosen_url("http://argument") == "http://argument"
    assert chosen_token(THERE, "slp_argument") == "slp_argument"


def test_the_token_of_the_environment_is_not_sent_to_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sign_in()
    monkeypatch.setenv("SLIPWAY_URL", THERE)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_environment")
    assert chosen_token(THERE) == "slp_environment"
    assert chosen_token(HERE) == "slp_here"
    with pytest.raises(errors.NotLoggedIn):
        chosen_token("http://elsewhere")


def test_the_default_project_belongs_to_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in()
    assert default_project(HERE) == "churn"
    assert default_project(THERE) is None
    monkeypatch.setenv("SLIPWAY_PROJECT", "vision")
    assert default_project(THERE) == "vision"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000/", HERE),
        (" HTTP://LocalHost:8000 ", HERE),
        ("https://slipway.example.org:443", THERE),
        ("http://example.org:80/slipway/", "http://example.org/slipway"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_has_one_spelling(text: str, url: str) -> None:
    assert clean_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "localhost:8000",
        "ftp://example.org",
        "http://",
        "http://user:password@example.org",
        "http://example.org/?next=x",
        "http://example.org:99999",
        "http://exa\x1bmple.org",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput, match="not the address of a server"):
        clean_url(text)


@pytest.mark.parametrize("text", ["", "  ", "slp_a b", "slp_ä", "slp_\x00", "x" * 501])
def test_what_cannot_be_a_token_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        clean_token(text)
    assert not text.strip() or text not in str(caught.value)


def test_a_damaged_login_file_is_named_without_its_content() -> None:
    credentials_path().parent.mkdir()
    content = {"servers": {HERE: {"token": ["slp_secret"]}}}
    for text in (json.dumps(content), "{", "[]", ""):
        credentials_path().write_text(text)
        with pytest.raises(errors.InvalidInput) as caught:
            read_logins()
        assert str(credentials_path()) in str(caught.value)
        assert "slp_secret" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "file" / "config"))
    with pytest.raises(errors.InvalidInput, match="cannot be"):
        sign_in()


def test_a_login_does_not_show_its_token() -> None:
    sign_in()
    assert "slp_here" not in repr(read_logins())
