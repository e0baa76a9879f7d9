"""Environments and code: built or fetched once, verified, and explained when they fail."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slipway.schemas.agent import EnvironmentSpec
from tests.workers.fake_portal import FakePortal, Key, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import add_to_index, make_wheel
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.requirement_lines import checked_requirements
from workers.node_agent.retention import forget_unpacked, remove_oldest
from workers.node_agent.snapshots import copy_fresh, unpack

# In pieces: nothing in the repository may name where packages come from.
OPTION = "index" + "-url"


@pytest.fixture
def building(make_machine: Callable[..., Machine], tmp_path: Path) -> Machine:
    """A node that installs from a folder of wheels alone."""
    # Builds from source run as the Unix user of their project.
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "lighthouse", "1.0")
    make_wheel(tmp_path, "lighthouse", "2.0")
    machine = make_machine("--readable", str(tmp_path))
    machine.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    return machine.start().connected()


def add_environment(portal: FakePortal, requirements: str, *, python: str = "3.11") -> str:
    """Tell the portal of an environment; answers its digest."""
    digest = hashlib.sha256(f"{python}\n{requirements}".encode()).hexdigest()
    spec = EnvironmentSpec(digest=digest, requirements=requirements, python=python)
    portal.state.environments[digest] = spec
    return digest


def run_in(portal: FakePortal, digest: str, name: str, **changes: object) -> Key:
    """Run a script that says which lighthouse it finds."""
    code = "import lighthouse, sys\nprint(lighthouse.version, sys.prefix)"
    snapshot = portal.state.add_snapshot({"a.py": code})
    spec = make_spec("python", "a.py", snapshot=snapshot, environment=digest, **changes)
    return portal.state.want(name, spec)


@pytest.mark.thorough
def test_tasks_find_the_packages_they_asked_for(portal: FakePortal, building: Machine) -> None:
    one = add_environment(portal, "lighthouse==1.0\n")
    two = add_environment(portal, "# newer\nlighthouse == 2.0 ; python_version > '3.8'\n")
    keys = {"1.0": run_in(portal, one, "t1"), "2.0": run_in(portal, two, "t2")}
    for version, key in keys.items():
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=60)  # type: ignore[misc]
        assert end.reason == "completed", end
        assert end.log_tail.startswith(f"{version} {building.data_dir / 'environments'}")


def test_one_build_serves_all_and_its_log_is_told(portal: FakePortal, building: Machine) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    keys = [run_in(portal, digest, f"t{number}") for number in range(3)]
    for key in keys:
        eventually(lambda key=key: portal.state.end_of(key), within_s=60)  # type: ignore[misc]
    reports = portal.state.environment_reports[digest]
    assert [report.state for report in reports].count("ready") == 1
    assert reports[-1].state == "ready"
    text = "".join(report.log for report in reports)
    assert text.count("+ lighthouse==1.0") == 1, text
    (home,) = (building.data_dir / "environments").iterdir()
    assert len(list(home.glob("attempt-*"))) == 1
    assert reports[-1].locked == "lighthouse==1.0"
    assert (reports[-1].size_bytes or 0) > 1000


@pytest.mark.thorough
def test_an_environment_is_built_ahead_once_and_its_first_task_finds_it(
    portal: FakePortal, building: Machine
) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    bad = add_environment(portal, "lighthouse==9.9\n")
    requests = [
        {"id": str(at), "project": "p1", "digest": it} for at, it in enumerate([bad, digest])
    ]
    portal.state.builds_ahead = requests
    portal.state.bump()
    reports = portal.state.environment_reports
    eventually(lambda: reports[digest] and reports[digest][-1].state == "ready", within_s=60)
    assert reports[digest][-1].project == "p1"
    assert reports[digest][-1].locked == "lighthouse==1.0"
    assert reports[bad][-1].state == "failed"
    portal.state.bump()  # the same request again
    key = run_in(portal, digest, "t1", persistent_key="p1/t1")
    assert eventually(lambda: portal.state.end_of(key), within_s=60).reason == "completed"
    assert {report.build for report in reports[digest]} == {1}
    assert {report.build for report in reports[bad]} == {1}


@pytest.mark.thorough
def test_what_two_environments_share_is_on_the_disk_once(
    portal: FakePortal, building: Machine
) -> None:
    digests = [add_environment(portal, f"lighthouse==1.0{more}\n") for more in ("", ", <2")]
    for number, digest in enumerate(digests):
        run = run_in(portal, digest, f"t{number}")
        assert eventually(partial(portal.state.end_of, run), within_s=60).reason == "completed"
    paths = building.data_dir.glob("environments/*/attempt-*/lib/*/site-packages/lighthouse.py")
    (number,) = {path.stat().st_ino for path in paths}
    folders = NodeFolders(building.data_dir)
    assert number in {path.stat().st_ino for path in folders.unpacked.rglob("lighthouse.py")}
    asyncio.run(forget_unpacked(folders))
    assert not list(folders.unpacked.rglob("lighthouse.py"))
    for number, requirements in enumerate(("lighthouse==1.0\n", "lighthouse==2.0\n")):
        run = run_in(portal, add_environment(portal, requirements), f"later-{number}")
        assert eventually(partial(portal.state.end_of, run), within_s=60).reason == "completed"


@pytest.mark.thorough
def test_where_pip_is_told_what_uv_does_not_know_pip_installs(
    portal: FakePortal, building: Machine
) -> None:
    building.kill()
    building.environment["PIP_ONLY_BINARY"] = ":all:"
    building.start().connected()
    digest = add_environment(portal, "lighthouse==1.0\n")
    key = run_in(portal, digest, "t1")
    assert eventually(partial(portal.state.end_of, key), within_s=60).reason == "completed"
    text = "".join(report.log for report in portal.state.environment_reports[digest])
    assert "slower than uv: pip has the option only-binary, which uv does not support.\n" in text
    assert "Successfully installed lighthouse-1.0" in text


@pytest.mark.thorough
def test_an_index_and_versions_of_the_requirements_complete_those_of_the_node(
    portal: FakePortal, building: Machine, tmp_path: Path
) -> None:
    own, extra = tmp_path / "own", tmp_path / "extra"
    add_to_index(own, make_wheel(tmp_path, "beacon", "1.0"))
    add_to_index(extra, make_wheel(tmp_path, "harbour", "1.0"))
    for wheel in tmp_path.glob("*.whl"):
        wheel.unlink()
    handler = partial(SimpleHTTPRequestHandler, directory=str(extra))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    building.kill()
    building.environment = {"PIP_" + OPTION.upper().replace("-", "_"): f"file://{own}"}
    building.start().connected()
    lines = (
        f"--extra-{OPTION} http://127.0.0.1:{server.server_port}\n--constraint beacon<2\n"
        "beacon\nharbour\n"
    )
    snapshot = portal.state.add_snapshot({"a.py": "import beacon, harbour\nprint('both')"})
    spec = make_spec(
        "python", "a.py", snapshot=snapshot, environment=add_environment(portal, lines)
    )
    key = portal.state.want("t1", spec)
    try:
        end = eventually(lambda: portal.state.end_of(key), within_s=60)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (end.reason, end.log_tail.strip()) == ("completed", "both"), end


@pytest.mark.thorough
def test_all_of_it_is_compiled_behind_its_tasks_also_when_that_was_broken_off(
    portal: FakePortal, building: Machine
) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    home = building.data_dir / "environments" / digest

    def compiled() -> list[Path]:
        return list(home.glob("attempt-*/lib/**/lighthouse.*.pyc")) if marker.exists() else []

    marker = home / "compiled"
    first = run_in(portal, digest, "t1")
    assert eventually(lambda: portal.state.end_of(first)).reason == "completed"
    (file,) = eventually(compiled)
    building.kill()
    for gone in (marker, file):
        gone.unlink()
    building.start()
    second = run_in(portal, digest, "t2")
    end = eventually(lambda: portal.state.end_of(second))
    assert end.reason == "completed", end
    assert eventually(compiled) == [file]


@pytest.mark.thorough
def test_what_is_built_anew_while_the_agent_lives_is_compiled_again(
    portal: FakePortal, building: Machine
) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    home = building.data_dir / "environments" / digest
    for name in ("t1", "t2"):
        run = run_in(portal, digest, name)
        end = eventually(partial(portal.state.end_of, run), within_s=60)
        assert end.reason == "completed", end
        eventually((home / "compiled").exists)
        assert list(home.glob("attempt-*/lib/**/lighthouse.*.pyc"))
        eventually(lambda: not (home / "compile.tmp").exists())  # it would vanish meanwhile
        shutil.rmtree(home)


@pytest.mark.thorough
def test_what_was_built_before_is_no_new_build(portal: FakePortal, building: Machine) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    first = run_in(portal, digest, "t1")
    eventually(lambda: portal.state.end_of(first), within_s=60)
    eventually(lambda: portal.state.environment_reports[digest][-1].state == "ready")
    building.kill()
    building.start().connected()
    reported = len(portal.state.environment_reports[digest])
    second = run_in(portal, digest, "t2")
    assert eventually(lambda: portal.state.end_of(second), within_s=60).reason == "completed"
    eventually(lambda: len(portal.state.environment_reports[digest]) > reported)
    assert {report.build for report in portal.state.environment_reports[digest]} == {1}


@pytest.mark.thorough
def test_tasks_that_name_no_environment_find_the_default_one(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    make_wheel(tmp_path, "lighthouse", "1.0")
    requirements = tmp_path / "jobs.txt"
    requirements.write_text("# what jobs find\nlighthouse==1.0\n")
    machine = make_machine(
        *("--requirements", str(requirements), "--readable", str(tmp_path)), python=False
    )
    machine.environment |= {"PIP_FIND_LINKS": str(tmp_path), "PIP_NO_INDEX": "1"}
    machine.start().connected()
    script = (
        "import importlib.util, sys, lighthouse\n"
        "print(sys.prefix, [importlib.util.find_spec(name) for name in ('django', 'httpx')])\n"
        # The SDK works all the same, with packages that the script does not see.
        "import slipway; print(slipway.Client.__module__)\n"
    )
    end = eventually(lambda: portal.state.end_of(portal.state.run("t1", script)), within_s=60)
    assert end.reason == "completed", end
    (home,) = (machine.data_dir / "environments").iterdir()
    assert end.log_tail.startswith(str(home))
    assert end.log_tail.endswith("[None, None]\nslipway.client\n")


@pytest.mark.thorough
def test_a_build_that_fails_tells_its_last_lines(portal: FakePortal, building: Machine) -> None:
    digest = add_environment(portal, "lighthouse==9.9\n")
    key = run_in(portal, digest, "t1")
    end = eventually(lambda: portal.state.end_of(key), within_s=60)
    assert end.reason == "environment_failed"
    assert "No matching distribution found for lighthouse==9.9" in end.message
    eventually(lambda: portal.state.environment_reports[digest][-1].state == "failed")
    assert portal.state.environment_reports[digest][-1].build == 1
    # What failed is not kept for good: with the package there, the same environment succeeds.
    make_wheel(Path(building.environment["PIP_FIND_LINKS"]), "lighthouse", "9.9")
    again = run_in(portal, digest, "t2")
    eventually(lambda: portal.state.environment_reports[digest][-1].state == "ready", within_s=60)
    assert portal.state.environment_reports[digest][-1].build == 2
    assert eventually(lambda: portal.state.end_of(again), within_s=60).reason == "completed"


@pytest.mark.thorough
def test_an_agent_killed_in_the_middle_of_a_build_builds_again(
    portal: FakePortal, building: Machine
) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    key = run_in(portal, digest, "t1")
    eventually(lambda: list((building.data_dir / "environments").glob("*/attempt-*")))
    building.kill()
    building.start()
    end = eventually(lambda: portal.state.end_of(key), within_s=60)
    assert end.reason == "completed", end


@pytest.mark.thorough
def test_a_python_the_node_does_not_have_is_named(portal: FakePortal, building: Machine) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n", python="2.1")
    end = eventually(lambda: portal.state.end_of(run_in(portal, digest, "t1")), within_s=30)
    assert end.reason == "environment_failed"
    assert "no Python 2.1 (it has " in end.message
    assert "`uv python install 2.1`" in end.message


@pytest.mark.thorough
def test_a_build_is_stopped_with_its_task(portal: FakePortal, building: Machine) -> None:
    digest = add_environment(portal, "lighthouse==1.0\n")
    key = run_in(portal, digest, "t1")
    eventually(lambda: list((building.data_dir / "environments").glob("*/attempt-*")))
    portal.state.stop(key)
    assert eventually(lambda: portal.state.end_of(key)).reason == "user"


@pytest.mark.parametrize(
    "text",
    [
        "numpy",
        "numpy==2.1.0",
        "numpy>=1,<3  # a comment",
        "torch[extra1,extra-2]~=2.0; sys_platform == 'linux' and python_version >= \"3.9\"",
        "pkg===1.0+local.1",
        "pkg (>=1.0)",
        "pkg @ https://example.org/pkg-1.0.whl",
        "pkg @ git+https://example.org/pkg.git@v1",
        "pkg==1.0 \\\n  --hash=sha256:" + "a" * 64,
        "",
        "# nothing",
    ],
)
def test_ordinary_requirements_are_accepted(text: str) -> None:
    checked_requirements(text)


@pytest.mark.parametrize(
    "text",
    [
        "-r other.txt",
        f"--{OPTION} https://user:word@evil.example",
        f"--extra-{OPTION}=file:///etc",
        "--trusted-" + "host evil.example",
        "-e .",
        "./local",
        "/etc/passwd",
        "file:///etc/passwd",
        "pkg @ file:///etc/passwd",
        "pkg @ http://example.org/a.whl",
        f"numpy --{OPTION} https://evil.example",
        "numpy; import os",
        "numpy && rm -rf /",
        "numpy`id`",
        "numpy\x00",
        "numpy==1.0 --install-option=x",
        "a" * 300_000,
    ],
)
def test_requirements_that_steer_pip_are_not(text: str) -> None:
    with pytest.raises(StartError, match="is not accepted"):
        checked_requirements(text)


def tar_with(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar of hand-made members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """One entry of a tar."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


@pytest.mark.parametrize(
    "entry",
    [
        member("../outside"),
        member("/etc/outside"),
        member("a/../../outside"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.LNKTYPE, "a.py"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_that_reaches_out_is_refused(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_with((member("a.py"), b"1"), (entry, b"")))
    with pytest.raises(StartError):
        unpack(archive, tmp_path / "place")
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar", "place"}


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"not a tar at all" * 100)
    with pytest.raises(StartError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "place")


def test_a_copy_may_be_changed_and_the_original_stays(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_with((member("folder/a.py"), b"original")))
    unpack(archive, tmp_path / "place")
    (tmp_path / "place/folder/a.py").chmod(0o444)
    copy_fresh(tmp_path / "place", tmp_path / "work")
    (tmp_path / "work/folder/a.py").write_text("changed")
    assert (tmp_path / "place/folder/a.py").read_text() == "original"


@pytest.mark.thorough
def test_a_snapshot_that_arrives_changed_is_refused(portal: FakePortal, machine: Machine) -> None:
    digest = portal.state.add_snapshot({"a.py": "print()"})
    portal.state.snapshots[digest] += b"\0"
    key = portal.state.want("t1", make_spec("python", "a.py", snapshot=digest))
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "start_failed"
    assert "arrived damaged" in end.message


@pytest.mark.thorough
def test_a_snapshot_the_portal_does_not_have_is_explained(
    portal: FakePortal, machine: Machine
) -> None:
    key = portal.state.want("t1", make_spec("python", "a.py", snapshot="ab" * 32))
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "start_failed"
    assert "not_found" in end.message


@pytest.mark.thorough
def test_a_snapshot_is_fetched_once_and_each_task_has_its_own_copy(
    portal: FakePortal, machine: Machine
) -> None:
    script = "import json, os\nopen('made', 'x')\nprint(json.dumps(sorted(os.listdir())))"
    keys = [portal.state.run(f"t{number}", script) for number in range(3)]
    for key in keys:
        end = eventually(lambda key=key: portal.state.end_of(key))  # type: ignore[misc]
        assert json.loads(end.log_tail) == ["made", "train.py"]
    (snapshot,) = (machine.data_dir / "snapshots").iterdir()
    assert [path.name for path in snapshot.iterdir()] == ["train.py"]


def test_the_least_recently_used_copies_go_first(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"copy-{number}").mkdir()
        old = 1_000_000 + number
        os.utime(tmp_path / f"copy-{number}", (old, old))
    assert remove_oldest(tmp_path, 3, frozenset({"copy-0"})) == ["copy-1"]
    assert remove_oldest(tmp_path, 10, frozenset()) == []
