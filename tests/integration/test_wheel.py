"""The SDK as people get it: a wheel, installed where nothing else is."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import slipway
from tests.house.sources import ROOT

pytestmark = pytest.mark.integration


def run(*arguments: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program outside the repository, without what its environment says about Slipway."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLIPWAY_", "PYTHON"))
    }
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=kept | {"SLIPWAY_CONFIG_DIR": str(cwd / "config")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def _pip_of(programs: Path) -> tuple[str | Path, ...]:
    """Our own pip, told to work there: putting one there takes longer than all it installs."""
    return sys.executable, "-m", "pip", "--python", programs / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and what it asks for; returns its folder of programs."""
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy, because building leaves folders beside the source.
    source = folder / "source"
    shutil.copytree(
        ROOT / "platform" / "slipway",
        source / "platform" / "slipway",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv")
    programs = folder / "venv" / "bin"
    run(*_pip_of(programs), "install", "--quiet", wheel, cwd=folder)
    return programs


def test_the_wheel_is_whole_typed_licensed_and_pulls_in_little(
    installed: Path, tmp_path: Path
) -> None:
    # One test: processes that share tests would each build and install it.
    _starts_and_explains_itself(installed, tmp_path)
    _pulls_in_neither_django_nor_torch(installed, tmp_path)
    _is_typed_licensed_and_of_the_same_version(installed, tmp_path)


def _starts_and_explains_itself(installed: Path, tmp_path: Path) -> None:
    version = run(installed / "slipway", "--version", cwd=tmp_path)
    assert version.stdout == f"slipway {slipway.__version__}\n"
    assert "login" in run(installed / "slipway", "--help", cwd=tmp_path).stdout
    assert run(installed / "slipway", "whoami", cwd=tmp_path, check=False).returncode == 3


def _pulls_in_neither_django_nor_torch(installed: Path, tmp_path: Path) -> None:
    listed = run(*_pip_of(installed), "list", "--format", "freeze", cwd=tmp_path).stdout.lower()
    names = {line.partition("==")[0] for line in listed.splitlines()}
    assert {"slipway", "httpx", "pydantic", "rich", "typer"} <= names
    assert not names & {"django", "torch", "numpy", "mlflow", "celery", "redis"}


def _is_typed_licensed_and_of_the_same_version(installed: Path, tmp_path: Path) -> None:
    script = (
        "import importlib.metadata as m, pathlib, slipway;"
        "facts = m.metadata('slipway');"
        "assert facts['License-Expression'] == 'Apache-2.0', facts;"
        "assert facts['License-File'] == 'LICENSE', facts;"
        "assert m.version('slipway') == slipway.__version__;"
        "assert (pathlib.Path(slipway.__file__).parent / 'py.typed').exists();"
        "import sys; assert 'typer' not in sys.modules and 'rich' not in sys.modules"
    )
    run(installed / "python", "-c", script, cwd=tmp_path)
