"""Finished environments: a touched file is noticed by its status, and its content decides."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from workers.launcher.processes import boot_id
from workers.node_agent.environment_records import EnvironmentRecord
from workers.node_agent.manifests import ContentChanged, fingerprint_of, sealed_status


@pytest.fixture
def sealed(tmp_path: Path) -> EnvironmentRecord:
    """An environment that is ready, whose content is not recorded yet."""
    attempt = tmp_path / "attempt-1"
    packages = attempt / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "lighthouse.py").write_text("version = '1.0'\n")
    (packages / "beacon.py").write_text("")
    (attempt / "bin").mkdir()
    (attempt / "bin" / "python").write_text("#!/bin/sh\n")
    (attempt / "bin" / "python").chmod(0o755)
    fingerprint, size_bytes = sealed_status(attempt)
    record = EnvironmentRecord(attempt, "", size_bytes, "", "python", (), fingerprint, boot_id())
    record.write()
    return record


def module_of(record: EnvironmentRecord) -> Path:
    """The module whose content the tests change."""
    return record.attempt / "lib" / "python3.11" / "site-packages" / "lighthouse.py"


def change_secretly(path: Path) -> None:
    """Change content, and hide it as far as a user can: the same size, and the times of before."""
    before = path.stat()
    path.write_text("version = '6.6'\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_change_before_the_content_is_recorded_is_noticed(sealed: EnvironmentRecord) -> None:
    assert sealed.checked() == sealed
    change_secretly(module_of(sealed))
    for compare in (sealed.checked, sealed.recorded):
        with pytest.raises(ContentChanged, match="before its content was recorded"):
            compare()


def test_bytecode_of_the_first_tasks_is_no_change(sealed: EnvironmentRecord) -> None:
    bytecode = module_of(sealed).parent / "__pycache__" / "lighthouse.cpython-311.pyc"
    bytecode.parent.mkdir()
    bytecode.write_bytes(b"compiled")
    assert sealed.checked() == sealed
    recorded = sealed.recorded()
    assert recorded.digest
    assert not any("__pycache__" in path for path in recorded.checked_manifest().entries)
    # Left by a compilation that was broken off.
    recorded.checked()
    assert not bytecode.exists()


def test_what_was_not_recorded_before_another_boot_is_built_again(
    sealed: EnvironmentRecord,
) -> None:
    home = sealed.attempt.parent
    assert EnvironmentRecord.read(home) == sealed
    replace(sealed, boot="another").write()
    assert EnvironmentRecord.read(home) is None
    replace(sealed.recorded(), boot="another").write()
    assert EnvironmentRecord.read(home) is not None


@pytest.mark.parametrize("action", ["change", "add", "remove", "mode", "link"])
def test_a_change_is_noticed(sealed: EnvironmentRecord, action: str) -> None:
    record = sealed.recorded().compiled()
    assert record.checked() == record
    module = module_of(record)
    if action == "change":
        change_secretly(module)
    elif action == "add":
        module.with_name("usercustomize.py").write_text("")
    elif action == "remove":
        module.unlink()
    elif action == "mode":
        module.chmod(0o777)
    else:
        module.unlink()
        module.symlink_to("/etc/passwd")
    with pytest.raises(ContentChanged):
        record.checked()


def test_bytecode_of_a_finished_environment_may_not_be_added(sealed: EnvironmentRecord) -> None:
    record = sealed.recorded().compiled()
    folder = module_of(record).parent / "__pycache__"
    folder.mkdir()
    (folder / "lighthouse.cpython-311.pyc").write_bytes(b"compiled")
    with pytest.raises(ContentChanged, match="was added"):
        record.checked()


def test_a_new_link_of_another_environment_is_no_change(sealed: EnvironmentRecord) -> None:
    record = sealed.recorded().compiled()
    os.link(module_of(record), record.attempt.with_name("other.py"))
    checked = record.checked()
    assert checked.digest == record.digest
    assert checked.fingerprint != record.fingerprint
    checked.write()
    assert checked.checked() == checked


def test_status_is_enough_until_the_next_boot(sealed: EnvironmentRecord) -> None:
    record = sealed.recorded().compiled()
    change_secretly(module_of(record))
    # As if the disk had lost the content: the status is that of the record.
    damaged = replace(record, fingerprint=fingerprint_of(record.attempt))
    assert damaged.checked() == damaged
    with pytest.raises(ContentChanged, match="was changed"):
        replace(damaged, boot="another").checked()


def test_a_record_of_an_earlier_release_has_everything_compared(sealed: EnvironmentRecord) -> None:
    record = replace(sealed.recorded().compiled(), fingerprint="", boot="")
    checked = record.checked()
    assert checked.fingerprint
    change_secretly(module_of(record))
    with pytest.raises(ContentChanged, match="was changed"):
        record.checked()
