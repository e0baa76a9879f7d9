"""Choice of the environment a model is served in: the default one, or one built for it.

Nodes build the default environment from `requirements/jobs.txt`. A model whose own requirements it
satisfies is served there, from a warm process. For any other model an environment is built from its
requirements.
"""

from functools import cache
from pathlib import Path

from django.conf import settings
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from portal.compute.services.environments import default_python, normalised

# Packages that the model server itself imports. The model's own requirements override them.
_SERVER = ("httpx>=0.28", "mlflow", "numpy", "orjson", "pandas", "pydantic>=2.12", "uvloop")


def environment_for(requirements: str, python: str) -> tuple[str, str]:
    """Return the requirements and the Python of a model's environment, ("", "") for the default.

    `requirements` are those that came with the model, `python` its version (empty when unknown).
    Raises InvalidInput for a line that is not a package.
    """
    lines = normalised(requirements).splitlines()
    minor = ".".join(python.split(".")[:2]) or default_python()
    if minor == default_python() and all(map(_is_satisfied, lines)):
        return "", ""
    named = {canonicalize_name(Requirement(_package(line)).name) for line in lines}
    missing = [need for need in _SERVER if canonicalize_name(Requirement(need).name) not in named]
    return normalised("\n".join([*lines, *missing])), minor


def _package(line: str) -> str:
    return line.partition(" --hash=")[0]


def _is_satisfied(line: str) -> bool:
    """Return whether the default environment satisfies a requirement."""
    requirement = Requirement(_package(line))
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
