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
    found: dict[str, Requirement] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        asked = line.split(" #")[0].strip()
        if asked.startswith("-r "):
            found |= written(path.parent / asked.removeprefix("-r ").strip())
        elif asked.startswith("-c "):
            continue
        elif asked and not asked.startswith("#"):
            requirement = Requirement(asked)
            found[canonicalize_name(requirement.name)] = requirement
    return found


def pinned(path: Path) -> dict[str, str]:
    """Return the versions a `.txt` file fixes."""
    matches = filter(None, map(_PIN.match, path.read_text(encoding="utf-8").splitlines()))
    return {canonicalize_name(match[1]): match[2] for match in matches}


def asked_for_directly(path: Path) -> set[str]:
    """Return the packages a `.txt` file says were asked for by hand."""
    found, current = set(), ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _PIN.match(line):
            current = canonicalize_name(match[1])
        elif _DIRECT.match(line):
            found.add(current)
    return found


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_compiled_requirements_agree_with_the_written_ones(path: Path) -> None:
    asked, fixed = written(path.with_suffix(".in")), pinned(path)
    missing = sorted(set(asked) - set(fixed))
    assert not missing, f"run `make requirements`: {missing}"
    outdated = [
        f"{requirement} but {name}=={fixed[name]}"
        for name, requirement in asked.items()
        if not requirement.specifier.contains(Version(fixed[name]), prereleases=True)
    ]
    assert not outdated, f"run `make requirements`: {outdated}"
    dropped = sorted(asked_for_directly(path) - set(asked))
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
    assert not {name: found for name, found in versions.items() if len(found) > 1}


@pytest.mark.parametrize("path", [*COMPILED, *WRITTEN], ids=lambda path: path.name)
def test_requirements_hold_no_addresses(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [
        line
        for line in lines
        if not line.lstrip().startswith("#")
        and ("://" in line or re.match(r"\s*(-i|-f|--)", line) is not None)
    ]
    assert not found


def test_the_wheel_asks_for_what_the_sdk_is_tested_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {str(Requirement(line)) for line in project["dependencies"]}
    assert declared == {str(asked) for asked in written(FOLDER / "slipway.in").values()}


@pytest.fixture(scope="module")
def lock() -> dict[str, Any]:
    """The npm lock file."""
    found: dict[str, Any] = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    return found


def test_the_npm_lock_holds_no_download_addresses(lock: dict[str, Any]) -> None:
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_npm_lock_fixes_what_the_package_file_asks_for(lock: dict[str, Any]) -> None:
    asked = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    root = lock["packages"][""]
    for kind in ("dependencies", "devDependencies"):
        assert root.get(kind, {}) == asked.get(kind, {})
        for name in asked.get(kind, {}):
            assert lock["packages"][f"node_modules/{name}"]["integrity"].startswith("sha512-")
