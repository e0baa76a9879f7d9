"""`slipway note` against a real server."""

import secrets
from collections.abc import Callable
from pathlib import Path

import httpx

from slipway.cli.exits import ExitCode
from tests.live import LivePortal
from tests.portal.workloads.machines import facts
from tests.slipway.cli.conftest import Cli


def _join(portal: LivePortal, root: Cli) -> str:
    """Join a machine, without which no notebook server is launched. Return its name."""
    name = f"node-{secrets.token_hex(4)}"
    token = root("node", "token", "--json").document["join_token"]
    details = facts().model_dump(mode="json")
    body = {"join_token": token, "name": name, "facts": details}
    httpx.post(f"{portal.url}/api/agent/v1/join", json=body).raise_for_status()
    return name


def test_notes_are_written_and_shown(
    signed_in: Callable[[str], Cli], portal: LivePortal, tmp_path: Path
) -> None:
    project, tier = f"notes-{secrets.token_hex(4)}", f"tier-{secrets.token_hex(4)}"
    root = signed_in("root")
    made = root(
        *("tier", "create", tier, "--cpus", "1", "--memory", "1GiB", "--price", "0.1", "--json")
    )
    assert made.code == 0, made.err
    node = _join(portal, root)
    assert root("project", "create", project, "--slug", project).code == 0
    here = ("--project", project)
    started = root("notebook", "start", "desk", "--tier", tier, "--no-wait", "--json", *here)
    assert started.code == 0, started.err
    target = ("notebook", started.document["id"])
    assert "There are no notes about notebook" in root("note", "show", *target, *here).err
    file = tmp_path / "notes.md"
    file.write_text("# Desk\n\nAsk Ada\n")
    assert "Saved version 1" in root("note", "write", *target, str(file), *here).err
    assert root("note", "show", *target, *here).out == "# Desk\n\nAsk Ada\n"
    stale = root("note", "write", *target, str(file), "--version", "0", "--json", *here)
    assert (stale.code, stale.problem["code"]) == (ExitCode.INVALID, "note_changed")
    missing = root("note", "write", *target, str(tmp_path / "none"), "--json", *here)
    assert missing.problem["field"] == "file"
    nothing = root("note", "show", "job", started.document["id"], "--json", *here)
    assert nothing.code == ExitCode.NOT_FOUND
    assert root("node", "remove", node, "--yes").code == 0
