"""A real agent takes checkpoints to the portal and brings them back, whatever lies in between."""

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from slipway.schemas.agent import StoredCheckpoint, TaskSpec
from tests.checkpoints import FILES, WRITER, make_folder, make_manifest, make_packed, packed_of
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, always, eventually

_WAIT = "\nimport time\nprint('began', flush=True)\ntime.sleep(600)\n"
LIMIT = 2**20
_LOOK = """
import os, pathlib
place = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"]) / "checkpoints"
print(sorted(path.name for path in place.iterdir()))
print({path.name: len(path.read_bytes()) for path in place.glob("step-*7/*")})
print("<end>")
"""
KEY = "p1/job"


def sent(portal: FakePortal, step: int, task: str = "t") -> bytes | None:
    return portal.state.checkpoints.get((task, step))


def stored(step: int, packed: bytes | None = None) -> StoredCheckpoint:
    """What the portal says it has of a step."""
    packed = make_packed(step) if packed is None else packed
    digest = hashlib.sha256(packed).hexdigest()
    return StoredCheckpoint(step=step, size_bytes=len(packed), digest=digest)


def spec_for(portal: FakePortal, script: str, **changes: object) -> TaskSpec:
    digest = portal.state.add_snapshot({"train.py": script})
    return make_spec("python", "train.py", snapshot=digest, persistent_key=KEY, **changes)


def persistent(machine: Machine) -> Path:
    return machine.data_dir / "persistent" / KEY


@pytest.mark.thorough
def test_the_newest_checkpoint_is_sent_and_again_after_a_kill(machine: Machine) -> None:
    portal = machine.portal
    script = f"{WRITER}\nsave(3)\nsave(7){_WAIT}"
    portal.state.want("t", spec_for(portal, script, copy_limit_bytes=LIMIT))
    eventually(lambda: sent(portal, 7), what="the newest checkpoint")
    assert sent(portal, 7) == make_packed_like(persistent(machine), 7)
    machine.kill()
    portal.state.checkpoints.clear()
    machine.start().connected()
    eventually(lambda: sent(portal, 7), what="the checkpoint again")


def make_packed_like(folder: Path, step: int) -> bytes:
    """Return a checkpoint on the disk as it travels."""
    manifest = folder / "checkpoints" / f"step-{step:010d}" / "manifest.json"
    return packed_of(manifest.read_bytes())


@pytest.mark.thorough
def test_what_is_wrong_on_the_disk_is_never_sent(machine: Machine, tmp_path: Path) -> None:
    portal = machine.portal
    secret = tmp_path / "secret"
    secret.write_bytes(FILES["__0_0.distcp"])
    place = persistent(machine)
    portal.state.want("t", spec_for(portal, _WAIT, copy_limit_bytes=LIMIT))
    eventually(lambda: "began" in portal.state.log_of(("t", 1)))
    linked = make_folder(place, 1) / "__0_0.distcp"
    linked.unlink()
    linked.symlink_to(secret)
    warned(machine, 1)
    (make_folder(place, 2) / "__0_0.distcp").write_bytes(b"w" * len(FILES["__0_0.distcp"]))
    warned(machine, 2)
    pipe = make_folder(place, 3) / ".metadata"
    pipe.unlink()
    os.mkfifo(pipe)
    warned(machine, 3)
    elsewhere = make_folder(tmp_path, 4)
    (place / "checkpoints" / elsewhere.name).symlink_to(elsewhere)
    warned(machine, 4)
    large = {"__0_0.distcp": bytes(2 * LIMIT)}
    make_folder(place, 5, large)
    warned(machine, 5)
    assert not portal.state.checkpoints
    make_folder(place, 6)
    eventually(lambda: sent(portal, 6), what="the whole one")


def warned(machine: Machine, step: int) -> None:
    text = f"the checkpoint of step {step} was not copied"
    eventually(lambda: text in machine.log.read_text(), what=text)


@pytest.mark.thorough
def test_a_part_of_a_gang_and_who_is_not_asked_send_nothing(machine: Machine) -> None:
    portal = machine.portal
    portal.state.want("t", spec_for(portal, f"{WRITER}\nsave(7){_WAIT}"))
    eventually(lambda: "began" in portal.state.log_of(("t", 1)))
    always(lambda: not portal.state.checkpoints, for_s=1.5)


@pytest.mark.thorough
def test_a_task_begins_with_the_checkpoint_from_the_store(machine: Machine) -> None:
    portal = machine.portal
    portal.state.checkpoints["t", 7] = make_packed(7)
    # Cut off and damaged ones are fetched again.
    portal.state.bad_checkpoints = [make_packed(7)[:-600], make_packed(8)]
    make_folder(persistent(machine), 3)
    key = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    eventually(lambda: portal.state.log_of(key).endswith("<end>\n"), what="the end")
    names, sizes = portal.state.log_of(key).splitlines()[:2]
    assert names == str(["step-0000000003", "step-0000000007"])
    expected = {name: len(data) for name, data in FILES.items()}
    expected["manifest.json"] = len(make_manifest(7))
    assert sizes == str({name: expected[name] for name in names_in(sizes)})
    messages = [report.message for report in portal.state.reports[key]]
    assert any("continues from the checkpoint of step 7" in line for line in messages)
    assert not list((machine.data_dir / "persistent").rglob(".fetch-*"))


def names_in(text: str) -> list[str]:
    """Return the names in a printed dict, in its order."""
    return [part.split("'")[1] for part in text.strip("{}").split(", ")]


@pytest.mark.thorough
def test_what_is_there_already_is_not_fetched(machine: Machine) -> None:
    portal = machine.portal
    make_folder(persistent(machine), 9)
    key = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    eventually(lambda: portal.state.log_of(key).endswith("<end>\n"), what="the end")
    assert "step-0000000007" not in portal.state.log_of(key)


@pytest.mark.thorough
def test_a_torn_one_on_the_disk_is_replaced(machine: Machine) -> None:
    portal = machine.portal
    portal.state.checkpoints["t", 7] = make_packed(7)
    (make_folder(persistent(machine), 7) / "__0_0.distcp").write_bytes(b"torn")
    key = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    eventually(lambda: portal.state.log_of(key).endswith("<end>\n"), what="the end")
    assert str(len(FILES["__0_0.distcp"])) in portal.state.log_of(key)


@pytest.mark.thorough
def test_a_task_is_not_started_from_less_than_the_store_has(
    make_machine: Callable[..., Machine],
) -> None:
    machine = make_machine().start().connected()
    portal = machine.portal
    gone = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    end = eventually(lambda: portal.state.end_of(gone), what="the end")
    assert end.reason == "start_failed"
    assert "step 7 could not be fetched" in end.message
    # A path in it, and a digest that is not the announced one.
    for task, packed in (
        ("u", packed_of(make_manifest(7, {"../x": b"1"}), {"../x": b"1"})),
        ("v", make_packed(7, {"a": b"other"})),
    ):
        portal.state.checkpoints[task, 7] = packed
        checkpoint = stored(7, packed if task == "u" else make_packed(7, {"a": b"wanted"}))
        key = portal.state.want(task, spec_for(portal, _LOOK, checkpoint=checkpoint))
        end = eventually(partial(portal.state.end_of, key), within_s=40, what="the end")
        assert end.reason == "start_failed", end
        assert "tried 4 times" in end.message
    assert not list((machine.data_dir / "persistent").rglob("x"))


def test_a_link_in_the_way_is_not_followed(machine: Machine, tmp_path: Path) -> None:
    portal = machine.portal
    portal.state.checkpoints["t", 7] = make_packed(7)
    persistent(machine).mkdir(parents=True)
    (persistent(machine) / "checkpoints").symlink_to(tmp_path)
    key = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    end = eventually(lambda: portal.state.end_of(key), what="the end")
    assert "cannot be stored" in end.message
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_a_fetch_waits_for_a_portal_that_is_away(machine: Machine) -> None:
    portal = machine.portal
    packed = make_packed(7)
    portal.state.checkpoints["t", 7] = packed
    key = portal.state.want("t", spec_for(portal, _LOOK, checkpoint=stored(7)))
    portal.stop()
    portal.start()
    eventually(lambda: portal.state.log_of(key).endswith("<end>\n"), what="the end")
    assert "step-0000000007" in portal.state.log_of(key)
