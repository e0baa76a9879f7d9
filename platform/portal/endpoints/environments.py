"""Choice of the environment a model is served in: the default one, or one built for it.

Nodes build the default environment from `requirements/jobs.txt`. A model whose own requirements it
satisfies is served there, from a warm process. For any other model an environment is built from its
requirements.
"""

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from portal.compute.services.default_environment import package_of, satisfies
from portal.compute.services.environments import (
    default_python,
    normalised,
    options_of,
    package_lines,
)

# Packages that the model server itself imports. The model's own requirements override them.
_SERVER = ("httpx>=0.28", "mlflow", "numpy", "orjson", "pandas", "pydantic>=2.12", "uvloop")


def environment_for(requirements: str, python: str) -> tuple[str, str]:
    """Return the requirements and the Python of a model's environment, ("", "") for the default.

    `requirements` are those that came with the model, `python` its version (empty when unknown).
    Raises InvalidInput for a line that is not a package.
    """
    canonical = normalised(requirements)
    lines = package_lines(canonical)
    minor = ".".join(python.split(".")[:2]) or default_python()
    if minor == default_python() and satisfies(canonical):
        return "", ""
    named = {canonicalize_name(Requirement(package_of(line)).name) for line in lines}
    missing = [need for need in _SERVER if canonicalize_name(Requirement(need).name) not in named]
    return normalised("\n".join([*options_of(canonical), *lines, *missing])), minor
