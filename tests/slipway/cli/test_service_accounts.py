"""Service accounts from the command line and in the SDK, against a real portal."""

import secrets

import pytest

import slipway
from slipway.cli.exits import ExitCode
from slipway.errors import Forbidden
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli


def test_an_account_is_created_used_changed_and_deleted(alice: Cli, portal: LivePortal) -> None:
    project = f"accounts-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    place = ("--project", project)
    created = alice("service-account", "create", "nightly", *place, "-d", "Trains.", "--json")
    assert (created.document["role"], created.document["state"]) == ("contributor", "active")
    token = ("service-account", "token")
    secret = alice(*token, "create", "nightly", "ci", "--preset", "ci", *place).out.strip()
    with slipway.Client(portal.url, secret) as robot:
        assert robot.whoami().user.name == "nightly (service account)"
        assert [row.slug for row in robot.projects.list()] == [project]
        with pytest.raises(Forbidden):
            robot.service_accounts.create("more", project=project)
    (listed,) = alice(*token, "list", "nightly", *place, "--json").document["items"]
    assert (listed["created_by"], listed["name"]) == ("alice@example.org", "ci")
    assert secret not in alice(*token, "list", "nightly", *place).out
    assert alice(*token, "revoke", "nightly", listed["id"], *place, "--yes").code == 0
    assert alice("service-account", "disable", "nightly", *place, "--yes").code == 0
    refused = alice(*token, "create", "nightly", "x", "--preset", "ci", *place, "--json")
    assert refused.problem["code"] == "account_disabled"
    assert alice("service-account", "enable", "nightly", *place).code == 0
    changed = alice("service-account", "edit", "nightly", "--role", "viewer", *place, "--json")
    assert changed.document["role"] == "viewer"
    assert "nightly" in alice("service-account", "list", *place).out
    assert "Trains." in alice("service-account", "show", "nightly", *place).out
    assert alice("service-account", "delete", "nightly", *place, "--yes").code == 0
    gone = alice("service-account", "show", "nightly", *place, "--json")
    assert gone.code == ExitCode.NOT_FOUND


def test_what_is_wrong_is_named_with_the_next_step(alice: Cli) -> None:
    unchanged = alice("service-account", "edit", "nightly", "--json")
    assert (unchanged.code, unchanged.problem["field"]) == (ExitCode.USAGE, "role")
    bare = alice("service-account", "token", "create", "nightly", "ci", "--json")
    assert (bare.code, bare.problem["field"]) == (ExitCode.USAGE, "preset")
