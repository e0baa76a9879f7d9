"""The SDK in an environment that lacks its packages, as jobs with their own requirements have."""

import subprocess
import sys
from pathlib import Path

import pytest

from workers.node_agent.sdk_packages import bundle_packages

_PLATFORM = Path(__file__).parents[2] / "platform"


def run(place: Path, script: str, *before: Path) -> str:
    """Run a script in a Python without packages, which finds the SDK in `place`, as a rank does."""
    paths = [*map(str, before), str(place)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {paths}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the SDK and its packages, as a node has it."""
    folder = tmp_path_factory.mktemp("sdk")
    (folder / "slipway").symlink_to(_PLATFORM / "slipway")
    bundle_packages(folder)
    return folder


def test_samples_of_inputs_and_progress_need_no_package_at_all() -> None:
    names = "slipway.mlflow_inputs, slipway.mlflow_golden, slipway.job"
    assert run(_PLATFORM, f"import {names}\nprint('loaded')") == "loaded\n"


def test_the_sdk_finds_its_packages_where_a_script_does_not(place: Path) -> None:
    script = """
import slipway
try:
    import httpx
except ModuleNotFoundError as error:
    print(error)
print(slipway.Client.__name__, slipway.dataset.__name__)
import pydantic
print(pydantic.__file__)
"""
    missing, names, where = run(place, script).splitlines()
    assert missing == "No module named 'httpx'"
    assert names == "Client dataset"
    assert where.startswith(str(place))


def test_packages_of_the_environment_come_first(place: Path, tmp_path: Path) -> None:
    (tmp_path / "platformdirs.py").write_text("def user_config_path(*_, **__): return 'theirs'\n")
    script = "import slipway.credentials\nprint(sys.modules['platformdirs'].__file__)"
    assert run(place, script, tmp_path).strip() == str(tmp_path / "platformdirs.py")


def test_half_a_bundle_is_replaced(place: Path) -> None:
    (folder,) = (place / "bundled").iterdir()
    (folder / "versions.txt").unlink()
    (folder / "httpx" / "__init__.py").unlink()
    (folder / "httpx" / "of-an-earlier-version.py").write_text("")
    bundle_packages(place)
    assert (folder / "httpx" / "__init__.py").is_file()
    assert not (folder / "httpx" / "of-an-earlier-version.py").exists()
    assert [entry.name for entry in (place / "bundled").iterdir()] == [folder.name]
    inode = folder.stat().st_ino
    bundle_packages(place)
    assert folder.stat().st_ino == inode
    assert all(path.stat().st_mode & 0o004 for path in folder.rglob("*"))
