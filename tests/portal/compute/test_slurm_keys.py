"""Keys for slurmrestd by the operator's command, and the tokens that they sign."""

import json
import time
from io import StringIO
from pathlib import Path

import jwt
import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from portal.compute.adapters.engines.slurm.tokens import SlurmKeys


@pytest.fixture
def keys(settings: Settings, tmp_path: Path) -> SlurmKeys:
    """The keys of an installation without any."""
    settings.KEYS_DIR = tmp_path
    return SlurmKeys(tmp_path / "slurm")


def run(*arguments: str) -> str:
    """Run the command and return what it prints."""
    output = StringIO()
    call_command("slurm_key", *arguments, stdout=output, stderr=StringIO())
    return output.getvalue().strip()


def test_keys_are_rotated_without_a_gap_and_kept_from_others(
    keys: SlurmKeys, tmp_path: Path
) -> None:
    first, second = run("create"), run("create")
    assert sorted(run("list").splitlines()) == sorted([f"{first} signs", second])
    published = json.loads(run("jwks"))["keys"]
    assert {key["kid"] for key in published} == {first, second}
    assert {name for key in published for name in key} == {"kty", "kid", "alg", "use", "e", "n"}
    with pytest.raises(CommandError, match="activate another key first"):
        run("remove", first)
    run("activate", second)
    run("remove", first)
    assert (keys.kids(), keys.signing()) == ([second], second)
    run("jwks", "--output", str(tmp_path / "public.jwks"))
    assert first not in (tmp_path / "public.jwks").read_text("ascii")
    folder = tmp_path / "slurm"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("kid", ["", "slipway-0123456789ab", "../oidc", "signing"])
def test_a_key_that_does_not_exist_is_named(keys: SlurmKeys, kid: str) -> None:
    run("create")
    for action in ("activate", "remove"):
        with pytest.raises(CommandError):
            run(action, kid)


def test_a_token_names_one_account_and_lasts_two_minutes(keys: SlurmKeys) -> None:
    kid = run("create")
    token = keys.token("alice")
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "typ": "JWT", "kid": kid}
    (public,) = jwt.PyJWKSet.from_dict(json.loads(run("jwks"))).keys
    claims = jwt.decode(token, public, algorithms=["RS256"])
    assert set(claims) == {"sun", "iat", "exp"}
    assert (claims["sun"], claims["exp"] - claims["iat"]) == ("alice", 120)
    assert abs(claims["iat"] - time.time()) < 30


@pytest.mark.parametrize(
    "account",
    ["root", "slurm", "munge", "daemon", "www-data", "systemd-network", "Root", "a b", "-x", ""],
)
def test_no_token_is_signed_for_an_account_of_the_system(keys: SlurmKeys, account: str) -> None:
    run("create")
    with pytest.raises(ValueError, match=r"account of the system|not the name of a person"):
        keys.token(account)


def test_without_a_key_the_next_step_is_named(keys: SlurmKeys) -> None:
    with pytest.raises(ValueError, match=r"manage\.py slurm_key create"):
        keys.token("alice")
