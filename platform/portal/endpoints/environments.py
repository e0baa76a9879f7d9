"""In which environment a model is served: the one every node has, unless it asks for another.

Nodes build one environment from `requirements/jobs.txt` for what names none. A model whose own
requirements it satisfies is served there, from a warm process; any other gets an environment built
from its requirements.
"""

from functools import cache
from pathlib import Path

from django.conf import settings
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from portal.compute.services.environments import default_python, normalised

# What the model server itself imports, where the model does not say which version.
_SERVER = ("httpx>=0.28", "mlflow", "numpy", "orjson", "pandas", "pydantic>=2.12", "uvloop")


def environment_for(requirements: str, python: str) -> tuple[str, str]:
    """Return the requirements and the Python a model is served with; ("", "") for the default.

    `requirements` are those that came with the model, `python` its version (empty when unknown).
    Raises InvalidInput for a line that is no package.
    """
    lines = normalised(requirements).splitlines()
    minor = ".".join(python.split(".")[:2]) or default_python()
    if minor == default_python() and all(map(_is_there, lines)):
        return "", ""
    named = {canonicalize_name(Requirement(_package(line)).name) for line in lines}
    missing = [need for need in _SERVER if canonicalize_name(Requirement(need).name) not in named]
    return normalised("\n".join([*lines, *missing])), minor


def _package(line: str) -> str:
    return line.partition(" --hash=")[0]


def _is_there(line: str) -> bool:
    """Whether the default environment satisfies a requirement."""
    requirement = Requirement(_package(line))
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    version = _default_packages().get(canonicalize_name(requirement.name))
    if version is None or requirement.url is not None:
        return False
    return requirement.specifier.contains(version, prereleases=True)


@cache
def _default_packages() -> dict[str, str]:
    """Return the packages of the default environment and their versions."""
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
