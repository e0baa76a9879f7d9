"""Builds as the attacker: what one leaves behind reaches no other project, and no key of ours."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskReport
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import add_to_index, make_source, make_wheel
from tests.workers.node_agent.test_environments import OPTION, add_environment
from workers.node_agent.manifests import sealed_status

CANARY = "canary-of-the-installation"
MARKER = "marker-of-the-attacker"
PRINT_VERSION = "import lighthouse\nprint(lighthouse.version, vars(lighthouse).get('mark', ''))"
# Appends to every copy of lighthouse in the caches of the node.
POISON = f"""\
for cache in ("uv-cache", "wheel-cache"):
    for path in (data / cache).rglob("lighthouse.py"):
        def append():
            with open(path, "a") as file:
                file.write("mark = '{MARKER}'\\n")
        quietly(append)
"""


@pytest.fixture
def node(make_machine: Callable[..., Machine], tmp_path: Path) -> Machine:
    """A node that installs from a folder of packages alone."""
    make_wheel(tmp_path, "lighthouse", "1.0")
    machine = make_machine("--readable", str(tmp_path))
    # Builds from source run as the Unix user of their project.
    tmp_path.chmod(0o755)
    machine.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    return machine.start().connected()


def run(
    portal: FakePortal, name: str, requirements: str, code: str, *, project: str = "mallory"
) -> TaskReport:
    """Run a script of a project in an environment, to its end."""
    digest = add_environment(portal, requirements)
    spec = make_spec(
        *("python", "a.py"),
        snapshot=portal.state.add_snapshot({"a.py": code}),
        environment=digest,
        persistent_key=f"{project}/{name}",
    )
    key = portal.state.want(name, spec)
    return eventually(partial(portal.state.end_of, key), within_s=120)


@pytest.mark.thorough
def test_a_configuration_that_a_build_wrote_opens_no_folder(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    keys = node.data_dir.parent / "keys"
    (keys / "bin").mkdir(parents=True)
    (keys / "secret.key").write_text(CANARY)
    attack = (
        'with open(attempt / "pyvenv.cfg", "a") as file:\n'
        f'    file.write("home = {keys}/bin\\\\n")\n'
    )
    make_source(tmp_path, "evil", "1.0", attack)
    read = f"print(open({str(keys / 'secret.key')!r}).read())"
    end = run(portal, "t1", "evil==1.0\n", read)
    assert CANARY not in end.log_tail
    assert end.reason == "environment_failed", end
    assert "'pyvenv.cfg' is not what the node wrote" in end.message


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (
            'os.unlink(attempt / "bin" / "python"); os.symlink("/bin/sh", attempt / "bin/python")',
            "'bin/python' is not the link that the node created",
        ),
        (
            '(attempt / "shortcut").symlink_to(data.parent / "keys")\n',
            "'shortcut' is a link out of the environment",
        ),
        pytest.param(
            'import sys\n(attempt / "lib" / "base").symlink_to(sys.base_prefix + "/lib")\n',
            "'lib/base' is a link out of the environment",
            marks=pytest.mark.slow,
        ),
        (
            'os.mknod(attempt / "raised"); os.chmod(attempt / "raised", 0o6755)',
            "'raised' has the set-user-ID or set-group-ID bit",
        ),
        ('os.mkfifo(attempt / "pipe")\n', "'pipe' is neither a file nor a folder nor a link"),
    ],
)
def test_what_a_build_may_not_leave_is_refused(
    portal: FakePortal, node: Machine, tmp_path: Path, attack: str, why: str
) -> None:
    make_source(tmp_path, "evil", "1.0", attack)
    end = run(portal, "t1", "evil==1.0\n", "print('ran')")
    assert (end.reason, end.log_tail) == ("environment_failed", ""), end
    assert why in end.message
    assert not list(node.data_dir.glob("environments/**/attempt-*/bin"))


FILL_DISK = """
import os, pathlib, tempfile, time
folder = pathlib.Path(tempfile.mkdtemp(dir={folder}))
for number in range(1 << 16):
    (folder / str(number)).write_bytes(bytes(1 << 20))
    time.sleep(0.02)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("folder", [pytest.param("None", marks=pytest.mark.slow), "attempt"])
def test_a_build_that_fills_the_disk_is_ended(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path, folder: str
) -> None:
    make_wheel(tmp_path, "lighthouse", "1.0")
    tmp_path.chmod(0o755)
    node = make_machine("--readable", str(tmp_path), "--task-disk", "48MiB")
    node.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    node.start().connected()
    make_source(tmp_path, "evil", "1.0", FILL_DISK.format(folder=folder))
    end = run(portal, "t1", "evil==1.0\n", "print('ran')")
    assert (end.reason, end.log_tail) == ("disk_full", ""), end
    assert "more than its limit of 48 MiB" in end.message
    assert not list(node.data_dir.glob("environments/**/attempt-*"))
    again = run(portal, "t2", "lighthouse==1.0\n", PRINT_VERSION)
    assert (again.reason, again.log_tail.strip()) == ("completed", "1.0"), again


@pytest.mark.thorough
def test_a_build_changes_no_file_of_another_environment(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    before = run(portal, "t1", "lighthouse==1.0\n", PRINT_VERSION, project="alice")
    assert before.log_tail.strip() == "1.0"
    make_source(tmp_path, "evil", "1.0", POISON)
    assert run(portal, "t2", "evil==1.0\nlighthouse\n", "print('built')").reason == "completed"
    for name, requirements in (("t3", "lighthouse==1.0\n"), ("t4", "lighthouse==1.0, <2\n")):
        end = run(portal, name, requirements, PRINT_VERSION, project="alice")
        assert (end.reason, end.log_tail.strip()) == ("completed", "1.0"), end


@pytest.mark.thorough
def test_a_wheel_runs_nothing_while_it_is_installed(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    before = run(portal, "t1", "lighthouse==1.0\n", PRINT_VERSION, project="alice")
    assert before.log_tail.strip() == "1.0"
    code = (
        "import pathlib, sys; "
        "own = pathlib.Path(sys.prefix); "
        "[path.open('a').write(\"mark = 'M'\\n\") for path in own.rglob('lighthouse.py')]"
    ).replace("'M'", repr(MARKER))
    make_wheel(tmp_path, "evil", "1.0", {"evil.pth": f"{code}\n"})
    run(portal, "t2", "evil==1.0\nlighthouse\n", "print('ran')")
    end = run(portal, "t3", "lighthouse==1.0\n", PRINT_VERSION, project="alice")
    assert (end.reason, end.log_tail.strip()) == ("completed", "1.0"), end


def test_a_build_writes_into_its_own_attempt_alone(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    assert run(portal, "t1", "lighthouse==1.0\n", PRINT_VERSION).log_tail.strip() == "1.0"
    environments = node.data_dir / "environments"
    (other,) = environments.glob("*/attempt-*/lib/*/site-packages")
    places = [node.data_dir, node.data_dir / "code", environments, other, *other.parents[:3]]
    attack = f"""\
places = [pathlib.Path(path) for path in {list(map(str, places))}]
for place in [*places, *attempt.parents[:3], data / "uv-cache", data / "wheel-cache"]:
    for name in ("evil.pth", "ready.json", "lock", "requirements.txt"):
        quietly(lambda: (place / name).write_text("import os # {MARKER}"))
"""
    make_source(tmp_path, "evil", "1.0", attack)
    end = run(portal, "t2", "evil==1.0\n", "print('ran')")
    assert end.reason == "completed", end.message
    files = (path for path in node.data_dir.rglob("*") if path.is_file() and path.suffix != ".tar")
    outside = [path for path in files if MARKER.encode() in path.read_bytes()]
    assert outside == []


@pytest.mark.thorough
def test_what_a_project_built_is_its_own(portal: FakePortal, node: Machine, tmp_path: Path) -> None:
    code = "import secrets\nfiles['evil.py'] = f'built = {secrets.token_hex(8)!r}\\n'"
    make_source(tmp_path, "evil", "1.0", code)
    show = "import evil, sys\nprint(evil.built, sys.prefix)"
    ends = {
        name: run(portal, name, "evil==1.0\n", show, project=project)
        for name, project in (("t1", "mallory"), ("t2", "alice"), ("t3", "mallory"))
    }
    assert {end.reason for end in ends.values()} == {"completed"}, ends
    tokens = {name: end.log_tail.split()[0] for name, end in ends.items()}
    assert tokens["t1"] == tokens["t3"] != tokens["t2"]
    assert "/environments/projects/alice/" in ends["t2"].log_tail
    # Every file is on the disk for it alone.
    (module,) = node.data_dir.glob("environments/projects/alice/*/attempt-*/lib/**/evil.py")
    assert module.stat().st_nlink == 1
    assert module.stat().st_mode & 0o222 == 0


@pytest.mark.thorough
def test_the_newest_version_is_installed_though_it_needs_a_source(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    make_wheel(tmp_path, "sail", "1.0")
    make_wheel(tmp_path, "sail", "2.0", requires="mast")
    make_source(tmp_path, "mast", "1.0")
    show = "import sail, sys\nprint(sail.version, sys.prefix)"
    end = run(portal, "t1", "sail\n", show)
    assert end.log_tail.split()[0] == "2.0", end
    assert "/environments/projects/mallory/" in end.log_tail


@pytest.mark.thorough
def test_an_older_version_that_another_requirement_needs_is_shared(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    make_wheel(tmp_path, "sail", "1.0")
    make_wheel(tmp_path, "sail", "2.0")
    make_wheel(tmp_path, "hull", "1.0", requires="sail<2")
    show = "import sail, sys\nprint(sail.version, sys.prefix)"
    end = run(portal, "t1", "sail\nhull\n", show)
    assert end.log_tail.split()[0] == "1.0", end
    assert "/environments/projects/" not in end.log_tail


@pytest.mark.thorough
def test_a_wheel_must_have_the_digest_that_its_index_states(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    add_to_index(index, make_wheel(tmp_path, "beacon", "1.0"))
    add_to_index(index, make_wheel(tmp_path, "liar", "1.0"), digest="ab" * 32)
    for wheel in tmp_path.glob("*.whl"):
        wheel.unlink()
    node.kill()
    node.environment = {"PIP_" + OPTION.upper().replace("-", "_"): f"file://{index}"}
    node.start().connected()
    assert run(portal, "t1", "beacon==1.0\n", "import beacon").reason == "completed"
    end = run(portal, "t2", "liar==1.0\n", "import liar")
    assert end.reason == "environment_failed", end
    assert "Hash mismatch" in end.message


@pytest.mark.thorough
def test_an_address_on_this_machine_is_no_requirement(portal: FakePortal, node: Machine) -> None:
    for number, host in enumerate(("127.0.0.1:8443", "[::1]", "10.1.2.3", "169.254.169.254")):
        requirements = f"evil @ https://{host}/evil-1.0-py3-none-any.whl\n"
        end = run(portal, f"t{number}", requirements, "print('ran')")
        assert end.reason == "environment_failed", end
        assert "is not on the public network" in end.message


@pytest.mark.thorough
@pytest.mark.parametrize(
    "action",
    [
        "hide",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("change", "add", "remove")),
    ],
)
def test_a_changed_environment_is_refused_and_built_anew(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path, action: str
) -> None:
    make_wheel(tmp_path, "lighthouse", "1.0")
    requirements = tmp_path / "jobs.txt"
    requirements.write_text("lighthouse==1.0\n")
    options = ("--requirements", str(requirements), "--readable", str(tmp_path))
    node = make_machine(*options, python=False)
    node.environment |= {"PIP_FIND_LINKS": str(tmp_path), "PIP_NO_INDEX": "1"}
    node.start().connected()

    def run_default(name: str) -> TaskReport:
        return eventually(
            partial(portal.state.end_of, portal.state.run(name, PRINT_VERSION)), within_s=60
        )

    assert run_default("t1").log_tail.strip() == "1.0"
    home = next((node.data_dir / "environments").iterdir())
    eventually((home / "compiled").exists)
    node.kill()
    (module,) = home.glob("attempt-*/lib/*/site-packages/lighthouse.py")
    target = {"add": module.with_name("usercustomize.py")}.get(action, module)
    if action == "remove":
        target.unlink()
    elif action == "hide":
        # The same size, and the times of before. No user can set the time of the last change.
        before = target.stat()
        target.write_text("version = '6.6'".ljust(before.st_size))
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        target.write_text(f"version = 'x'\nmark = {MARKER!r}\n")
    # Nobody may run it before the agent has compared it.
    spare = node.start()
    refused = eventually(lambda: _refusal(spare), within_s=60)
    assert target.name in refused
    # Any task until the next look at the environment has it built anew.
    end = run_default("t2")
    assert (end.reason, end.log_tail.strip()) == ("completed", "1.0"), end
    assert len(list(home.glob("quarantine-attempt-*"))) == 1
    eventually((home / "compiled").exists)
    shutil.rmtree(home)


@pytest.mark.thorough
def test_a_change_before_contents_are_recorded_has_it_built_anew(
    portal: FakePortal, node: Machine
) -> None:
    assert run(portal, "t1", "lighthouse==1.0\n", PRINT_VERSION).log_tail.strip() == "1.0"
    (home,) = (node.data_dir / "environments").glob("[0-9a-f]*")
    eventually((home / "compiled").exists)
    node.kill()
    # As an agent leaves it that dies right after the environment is ready.
    (home / "compiled").unlink()
    record = json.loads((home / "ready.json").read_text())
    fingerprint, _ = sealed_status(home / record["attempt"])
    record |= {"digest": "", "fingerprint": fingerprint}
    (home / "ready.json").write_text(json.dumps(record))
    (module,) = home.glob("attempt-*/lib/*/site-packages/lighthouse.py")
    module.write_text(f"version = 'x'\nmark = {MARKER!r}\n")
    node.start().connected()
    end = run(portal, "t2", "lighthouse==1.0\n", PRINT_VERSION)
    assert (end.reason, end.log_tail.strip()) == ("completed", "1.0"), end
    assert len(list(home.glob("quarantine-attempt-*"))) == 1


def _refusal(machine: Machine) -> str | None:
    lines = machine.log.read_text().splitlines()
    return next((line for line in lines if "has changed since it was built" in line), None)
