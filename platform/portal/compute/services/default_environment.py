"""Packages of the environment of the installation, in which whatever names no packages runs."""

from functools import cache
from pathlib import Path

from django.conf import settings
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from portal.compute.services.environments import options_of, package_lines

_INDEXES = ("--index-url ", "--extra-index-url ", "--find-links ")


def satisfies(requirements: str) -> bool:
    """Return whether the environment of the installation has all of canonical requirements."""
    if not all(option.startswith(_INDEXES) for option in options_of(requirements)):
        return False
    return all(map(_is_satisfied, package_lines(requirements)))


def package_of(line: str) -> str:
    """Return a line of canonical requirements without its hashes."""
    return line.partition(" --hash=")[0]


def _is_satisfied(line: str) -> bool:
    requirement = Requirement(package_of(line))
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    version = _default_packages().get(canonicalize_name(requirement.name))
    if version is None or requirement.url is not None:
        return False
    return requirement.specifier.contains(version, prereleases=True)


@cache
def _default_packages() -> dict[str, str]:
    default_packages: dict[str, str] = {}
    for line in Path(settings.SLIPWAY_JOB_REQUIREMENTS).read_text("utf-8").splitlines():
        try:
            pinned = Requirement(line.partition("#")[0].strip().rstrip("\\").strip())
        except InvalidRequirement:
            continue  # comments, and the hashes of the line before
        versions = [part.version for part in pinned.specifier if part.operator == "=="]
        if versions:
            default_packages[canonicalize_name(pinned.name)] = versions[0]
    return default_packages
