"""What is installed: written by hand in one place, compiled in another, and both agree."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.house.sources import ROOT

FOLDER = ROOT / "requirements"
COMPILED = sorted(FOLDER.glob("*.txt"))
WRITTEN = sorted(FOLDER.glob("*.in"))
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_DIRECT = re.compile(r"^\s+#\s+(?:via )?-r requirements/([a-z_]+\.in)$")


def written(path: Path) -> dict[str, Requirement]:
    """Return what a `.in` file asks for, the files it includes among it."""
    requirements: dict[str, Requirement] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = line.split(" #")[0].strip()
        if entry.startswith("-r "):
            requirements |= written(path.parent / entry.removeprefix("-r ").strip())
        elif entry.startswith("-c "):
            continue
        elif entry and not entry.startswith("#"):
            requirement = Requirement(entry)
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


def pinned(path: Path) -> dict[str, str]:
    """Return the versions a `.txt` file fixes."""
    matches = filter(None, map(_PIN.match, path.read_text(encoding="utf-8").splitlines()))
    return {canonicalize_name(match[1]): match[2] for match in matches}


def asked_for_directly(path: Path) -> set[str]:
    """Return the packages a `.txt` file says were asked for by hand."""
    names, current = set(), ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _PIN.match(line):
            current = canonicalize_name(match[1])
        elif _DIRECT.match(line):
            names.add(current)
    return names


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_compiled_requirements_agree_with_the_written_ones(path: Path) -> None:
    requirements, fixed = written(path.with_suffix(".in")), pinned(path)
    missing = sorted(set(requirements) - set(fixed))
    assert not missing, f"run `make requirements`: {missing}"
    outdated = [
        f"{requirement} but {name}=={fixed[name]}"
        for name, requirement in requirements.items()
        if not requirement.specifier.contains(Version(fixed[name]), prereleases=True)
    ]
    assert not outdated, f"run `make requirements`: {outdated}"
    dropped = sorted(asked_for_directly(path) - set(requirements))
    assert not dropped, f"no longer asked for, run `make requirements`: {dropped}"


def test_everything_asked_for_is_compiled_somewhere() -> None:
    fixed = {name for path in COMPILED for name in pinned(path)}
    missing = {path.name: sorted(set(written(path)) - fixed) for path in WRITTEN}
    assert not {name: names for name, names in missing.items() if names}


def test_one_package_has_one_version_in_all_compiled_files() -> None:
    versions: dict[str, set[str]] = {}
    for path in COMPILED:
        for name, version in pinned(path).items():
            versions.setdefault(name, set()).add(version)
    assert not {name: pins for name, pins in versions.items() if len(pins) > 1}


@pytest.mark.parametrize("path", [*COMPILED, *WRITTEN], ids=lambda path: path.name)
def test_requirements_hold_no_addresses(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    addresses = [
        line
        for line in lines
        if not line.lstrip().startswith("#")
        and ("://" in line or re.match(r"\s*(-i|-f|--)", line) is not None)
    ]
    assert not addresses


def test_the_wheel_asks_for_what_the_sdk_is_tested_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {str(Requirement(line)) for line in project["dependencies"]}
    assert declared == {str(requirement) for requirement in written(FOLDER / "slipway.in").values()}


@pytest.fixture(scope="module")
def lock() -> dict[str, Any]:
    """The npm lock file."""
    lockfile: dict[str, Any] = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    return lockfile


def test_the_npm_lock_holds_no_download_addresses(lock: dict[str, Any]) -> None:
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_npm_lock_fixes_what_the_package_file_asks_for(lock: dict[str, Any]) -> None:
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    root = lock["packages"][""]
    for kind in ("dependencies", "devDependencies"):
        assert root.get(kind, {}) == package.get(kind, {})
        for name in package.get(kind, {}):
            assert lock["packages"][f"node_modules/{name}"]["integrity"].startswith("sha512-")
