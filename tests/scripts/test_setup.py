"""`scripts/setup` on machines that lack something: one clear line, and nothing twice."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT

_PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14", "python3", "python")
# Answers like an interpreter, as far as the script asks.
_INTERPRETER = """#!/bin/bash
case "$*" in
    *version_info*) exit ${TOO_OLD:-0} ;;
    *sysconfig*) [ ! -e "$(dirname "$0")/not-optimized" ] ;;
    --version) echo "Python ${VERSION:-3.11.9}" ;;
    *"import venv, ensurepip"*) exit ${NO_VENV:-0} ;;
    *"-m venv"*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *"-c import pip"*) ;;
    *"pip install"*"--no-deps uv=="*) exit ${NO_UV:-0} ;;
    "scripts/uv_install.py "*)
        echo uv $(ls .venv) >>calls; touch .venv/half; exit ${UV_STATUS:-0} ;;
    *"pip install"*)
        echo pip $(ls .venv) >>calls; echo "$PIP_SAYS"; exit ${PIP_STATUS:-0} ;;
esac
"""
_NPM = '#!/bin/bash\necho "npm $*" >>calls\nmkdir -p node_modules\n'


class Clone:
    """A fresh clone on a machine whose Python and npm the test decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        for path in ("scripts", "requirements", "programs"):
            (folder / path).mkdir()
        shutil.copy(ROOT / "scripts" / "setup", folder / "scripts" / "setup")
        for name in ("portal", "dev"):
            (folder / "requirements" / f"{name}.txt").write_text("django==5.2\nuv==1\n")
        (folder / "package-lock.json").write_text("{}")
        for name in _PYTHONS:
            self.install(name, _INTERPRETER)
        self.install("npm", _NPM)

    def install(self, name: str, text: str) -> None:
        """Put a program on the machine."""
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def setup(self, profile: str = "portal", **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run the script."""
        return subprocess.run(
            ["bash", "scripts/setup", profile],
            cwd=self.folder,
            env={"PATH": f"{self.programs}:/usr/bin:/bin", "HOME": str(self.folder)} | environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def refuses(self, **environ: str) -> str:
        """Run the script, which must fail with one line; returns that line."""
        done = self.setup(**environ)
        assert done.returncode == 2, done
        assert done.stderr.startswith("slipway: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    def tools(self) -> Path:
        """Return a folder with all of /usr/bin but its Pythons."""
        folder = self.folder / "tools"
        folder.mkdir()
        for path in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
            if not path.name.startswith("python") and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
        return folder

    def calls(self) -> list[str]:
        """What pip and npm were asked, in order."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_second_setup_does_nothing(clone: Clone) -> None:
    assert clone.setup().returncode == 0
    first = clone.calls()
    assert [call.split()[0] for call in first] == ["uv", "npm"]
    assert "--ignore-scripts" in first[-1]
    done = clone.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert clone.calls() == first


def test_what_uv_could_not_install_pip_installs_from_nothing(clone: Clone) -> None:
    assert clone.setup(UV_STATUS="1").returncode == 0
    uv, pip, _npm = clone.calls()
    assert uv == "uv bin"
    assert pip == "pip bin", "half a package may be there, which pip takes for whole"


def test_where_uv_is_not_to_be_had_pip_installs(clone: Clone) -> None:
    assert clone.setup(NO_UV="1").returncode == 0
    assert [call.split()[0] for call in clone.calls()] == ["pip", "npm"]


def test_a_changed_requirement_is_installed(clone: Clone) -> None:
    clone.setup()
    before = clone.calls()
    (clone.folder / "requirements" / "portal.txt").write_text("django==5.3\nuv==1\n")
    clone.setup()
    assert [call.split()[0] for call in clone.calls()[len(before) :]] == ["uv"]


def test_a_change_that_uv_cannot_install_leaves_what_is_there_to_pip(clone: Clone) -> None:
    clone.setup()
    (clone.folder / ".venv" / "kept").touch()
    (clone.folder / "requirements" / "portal.txt").write_text("django==5.3\nuv==1\n")
    clone.setup(UV_STATUS="1")
    assert "kept" in clone.calls()[-1]


def test_an_install_that_broke_off_is_done_again_from_nothing(clone: Clone) -> None:
    assert clone.setup(UV_STATUS="1", PIP_STATUS="1").returncode == 2
    (clone.folder / ".venv" / "half").touch()
    before = clone.calls()
    assert clone.setup().returncode == 0
    done = clone.calls()[len(before) :]
    assert [call.split()[0] for call in done] == ["uv", "npm"]
    assert "half" not in done[0]


def test_what_developers_installed_serves_the_portal(clone: Clone) -> None:
    clone.setup("dev")
    clone.setup("portal")
    assert len([call for call in clone.calls() if call.startswith("npm")]) == 1


def test_an_old_python_is_named_with_what_to_do(clone: Clone) -> None:
    line = clone.refuses(TOO_OLD="1", VERSION="3.9.2")
    assert "needs Python 3.11 or newer, but found Python 3.9.2" in line
    assert "apt install" in line
    assert not (clone.folder / ".venv").exists()


def test_a_named_python_is_the_one_that_is_used(clone: Clone) -> None:
    assert "found none" in clone.refuses(PYTHON="/nowhere/python3.11")


def with_two_pythons(clone: Clone) -> str:
    """Have the first Python on the PATH be one that is not optimized; returns the PATH."""
    (clone.programs / "not-optimized").touch()
    later = clone.folder / "later"
    later.mkdir()
    shutil.copy(clone.programs / "python3.11", later / "python3.11")
    return f"{clone.programs}:{later}:/usr/bin:/bin"


def test_of_several_pythons_an_optimized_one_is_used_and_told(clone: Clone) -> None:
    done = clone.setup(PATH=with_two_pythons(clone))
    assert done.returncode == 0, done
    assert f"({clone.folder}/later/python3.11, since the first on the PATH is not" in done.stdout


def test_a_named_python_is_used_though_it_is_not_optimized(clone: Clone) -> None:
    path = with_two_pythons(clone)
    done = clone.setup(PATH=path, PYTHON=f"{clone.programs}/python3.11")
    assert done.returncode == 0, done
    assert "(not optimized: a third slower than it could be)" in done.stdout
    assert "later" not in done.stdout


def test_an_optimized_python_without_venv_is_passed_over(clone: Clone) -> None:
    path = with_two_pythons(clone)
    later = clone.folder / "later" / "python3.11"
    later.write_text(later.read_text().replace("${NO_VENV:-0}", "1"))
    done = clone.setup(PATH=f"{path.removesuffix(':/usr/bin:/bin')}:{clone.tools()}")
    assert done.returncode == 0, done
    assert "Creating .venv with Python 3.11.9 (not optimized" in done.stdout


def test_a_python_without_venv_names_the_package(clone: Clone) -> None:
    assert "apt install python3-venv" in clone.refuses(NO_VENV="1")


def test_an_install_that_fails_says_why_in_one_line(clone: Clone) -> None:
    line = clone.refuses(
        UV_STATUS="1", PIP_STATUS="1", PIP_SAYS="ERROR: No matching distribution found"
    )
    assert "ERROR: No matching distribution found" in line
    assert ".cache/setup.log" in line


def test_a_disk_that_fills_up_during_the_install_says_so(clone: Clone) -> None:
    line = clone.refuses(
        UV_STATUS="1", PIP_STATUS="1", PIP_SAYS="OSError: [Errno 28] No space left on device"
    )
    assert "the disk filled up" in line
    assert "free 1500 MiB" in line


@pytest.fixture
def clone_on_a_small_disk(tmp_path: Path) -> Iterator[Clone]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield Clone(tmp_path)
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_small_disk_is_refused_before_anything_is_installed(
    clone_on_a_small_disk: Clone,
) -> None:
    line = clone_on_a_small_disk.refuses()
    assert "MiB free and the set-up needs 1500 MiB" in line
    assert clone_on_a_small_disk.calls() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_refused(clone: Clone) -> None:
    clone.folder.chmod(0o555)
    try:
        assert "cannot be written to" in clone.refuses()
    finally:
        clone.folder.chmod(0o755)
