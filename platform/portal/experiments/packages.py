"""Packages of two environments: lists such as `pip freeze` or requirements files, compared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

Change = Literal["added", "removed", "changed"]
MOST_LINES = 5_000
_MOST_CHARACTERS = 2_000
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HASHES = re.compile(r"\s--hash[= ]\S+")


@dataclass(frozen=True)
class PackageList:
    """Versions by the canonical name of the package, and the number of lines that are none.

    A version is `1.2` for `name==1.2`, else what the line asks for, such as `>=1` or a URL. It is
    empty for any version.
    """

    versions: Mapping[str, str]
    unread: int = 0


@dataclass(frozen=True)
class PackageChange:
    """A package that differs. The version is None on the side that does not have it."""

    name: str
    before: str | None
    after: str | None

    @property
    def change(self) -> Change:
        """The change from the first list to the second."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def parse_packages(text: str) -> PackageList:
    """Return the packages of a text with one a line. Comments and options of pip are skipped."""
    versions: dict[str, str] = {}
    lines = text.replace("\\\n", " ").splitlines()
    unread = max(0, len(lines) - MOST_LINES)
    for raw in lines[:MOST_LINES]:
        line = _HASHES.sub("", _COMMENT.sub("", raw)).strip()
        if not line or line.startswith("-"):
            continue
        try:
            if len(line) > _MOST_CHARACTERS:
                raise InvalidRequirement(line)
            requirement = Requirement(line)
        except InvalidRequirement:
            unread += 1
            continue
        versions[canonicalize_name(requirement.name)] = _version_of(requirement)
    return PackageList(versions, unread)


def _version_of(requirement: Requirement) -> str:
    if requirement.url:
        return requirement.url
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator in ("==", "==="):
        return specifiers[0].version
    return str(requirement.specifier)


def package_changes(before: PackageList, after: PackageList) -> Sequence[PackageChange]:
    """Return the packages that differ between two lists, by name."""
    names = sorted(before.versions.keys() | after.versions.keys())
    changes = (
        PackageChange(name, before.versions.get(name), after.versions.get(name)) for name in names
    )
    return [change for change in changes if change.before != change.after]
