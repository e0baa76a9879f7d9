"""docs/licences.md is current, and a licence that is not allowed is found."""

import subprocess
import sys

import pytest

from scripts.licences import LicenceError, LicensedPackage, check, licence_of
from tests.live import ROOT


def test_the_page_of_licences_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/licences.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": ["MIT OR Apache-2.0"]}, "MIT OR Apache-2.0"),
        ({"License": ["BSD 3-Clause License\n\nCopyright …"]}, "BSD-3-Clause"),
        (
            {"License": ["Copyright"], "Classifier": ["License :: OSI Approved :: MIT License"]},
            "MIT",
        ),
    ],
)
def test_a_licence_is_read_in_any_place_of_the_metadata(
    fields: dict[str, list[str]], licence: str
) -> None:
    assert licence_of("some-package", fields) == licence


@pytest.mark.parametrize(
    "fields", [{}, {"License": ["UNKNOWN"]}, {"License-Expression": ["AGPL-3.0-only"]}]
)
def test_a_licence_nobody_has_read_is_refused(fields: dict[str, list[str]]) -> None:
    with pytest.raises(LicenceError, match="some-package"):
        licence_of("some-package", fields)


def test_a_package_is_allowed_by_one_of_the_licences_it_offers() -> None:
    allowed = frozenset({"MIT"})
    check([LicensedPackage("a", "MIT OR GPL-3.0-or-later")], allowed)
    with pytest.raises(LicenceError, match="b has the licence"):
        check([LicensedPackage("b", "MIT AND GPL-3.0-or-later")], allowed)
    with pytest.raises(LicenceError, match="c has the licence"):
        check([LicensedPackage("c", "GPL-3.0-or-later AND (Apache-2.0 OR MIT)")], allowed)
