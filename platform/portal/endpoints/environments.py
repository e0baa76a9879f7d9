"""Choice of the environment a model is served in: the default one, or one built for it.

Nodes build the default environment from `requirements/jobs.txt`. A model whose own requirements it
satisfies is served there, from a warm process. For any other model an environment is built from its
requirements.
"""

from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from portal.accounts.models import Project
from portal.compute.models import EnvironmentVersion
from portal.compute.services.conda_environments import conda_with
from portal.compute.services.default_environment import package_of, satisfies
from portal.compute.services.environments import (
    default_python,
    normalised,
    options_of,
    package_lines,
)
from portal.compute.services.named_environments import resolve_environment
from portal.core.errors import InvalidInput
from portal.endpoints.ports import ServedModel

# Packages that the model server itself imports. The model's own requirements override them.
_SERVER = ("httpx>=0.28", "mlflow", "numpy", "orjson", "pandas", "pydantic>=2.12", "uvloop")
# Packages with the same files as another one. MLflow writes both into the requirements of a model
# that was logged with the first, and installing both would overwrite one with the other.
_BUILDS_OF = {"xgboost-cpu": "xgboost"}


def chosen_version(project: Project, reference: str | None) -> EnvironmentVersion | None:
    """Return the version of the environment that a request names, None for none.

    Raises InvalidInput for one that does not exist, is archived, or is that of the installation,
    which serves every model that it has the packages of.
    """
    if reference is None:
        return None
    version = resolve_environment(project=project, reference=reference)
    if version is None:
        raise InvalidInput(
            "A model is not served in the environment of the installation by name.",
            code="no_such_environment",
            field="environment",
            next_step="Leave it out: it is used for each model whose packages it has.",
        )
    return version


def in_environment(served: ServedModel, version: EnvironmentVersion | None) -> ServedModel:
    """Return a model with the packages of a named environment in place of its own.

    Packages that the model server needs are added.
    """
    if version is None:
        return served
    packages = version.environment
    if version.is_conda:
        source = conda_with(packages, _SERVER)
        changes = {"requirements": source.requirements, "python": "", "conda": packages.conda}
        return served.model_copy(update=changes)
    requirements, python = environment_for(packages.requirements, packages.python)
    return served.model_copy(update={"requirements": requirements, "python": python})


def environment_for(requirements: str, python: str) -> tuple[str, str]:
    """Return the requirements and the Python of a model's environment, ("", "") for the default.

    `requirements` are those that came with the model, `python` its version (empty when unknown).
    Raises InvalidInput for a line that is not a package.
    """
    canonical = normalised(requirements, has_archives=True)
    lines = _with_one_build(package_lines(canonical))
    minor = ".".join(python.split(".")[:2]) or default_python()
    if minor == default_python() and satisfies("\n".join([*options_of(canonical), *lines])):
        return "", ""
    named = set(map(_name_of, lines))
    missing = [need for need in _SERVER if canonicalize_name(Requirement(need).name) not in named]
    text = "\n".join([*options_of(canonical), *lines, *missing])
    return normalised(text, has_archives=True), minor


def _with_one_build(lines: Sequence[str]) -> list[str]:
    names = set(map(_name_of, lines))
    doubled = {package for build, package in _BUILDS_OF.items() if build in names}
    return [line for line in lines if _name_of(line) not in doubled]


def _name_of(line: str) -> str:
    return canonicalize_name(Requirement(package_of(line)).name)
