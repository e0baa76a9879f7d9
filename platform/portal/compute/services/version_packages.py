"""Packages of a version of a named environment: requirements for pip, or a file of conda."""

from dataclasses import dataclass

from portal.accounts.models import Project, User
from portal.compute.models import Environment
from portal.compute.services.conda_environments import (
    CondaSource,
    conda_file,
    pip_text,
    use_conda,
)
from portal.compute.services.environments import (
    canonical,
    default_python,
    digest_of,
    normalised,
    package_lines,
    refused_requirement,
    use_environment,
)
from portal.compute.services.pythons import require_python
from portal.core.errors import InvalidInput
from slipway.requirement_files.conda import is_conda_text
from slipway.requirement_files.conda_documents import conda_document, frozen_conda
from slipway.requirement_files.conda_packages import CondaEnvironment
from slipway.requirement_files.lines import RequirementRefused, parse_canonical


@dataclass(frozen=True)
class VersionPackages:
    """Packages in canonical form. With `conda` they bring their Python, else they need `python`.

    Whoever makes them has checked that the project has the archives that they name by digest.
    """

    requirements: str
    python: str
    conda: CondaSource | None = None

    @property
    def count(self) -> int:
        """The number of packages that are named."""
        own = 0 if self.conda is None else self.conda.environment.count
        return own + len(package_lines(self.requirements))

    @property
    def digest(self) -> str:
        """The digest of their environment."""
        if self.conda is not None:
            return self.conda.digest
        return digest_of(self.requirements, self.python)

    def use(self, project: Project, by: User) -> Environment:
        """Return their environment, now used by the project too. Raises InvalidInput."""
        if self.conda is not None:
            return use_conda(project=project, by=by, source=self.conda)
        return use_environment(
            project=project,
            by=by,
            requirements=self.requirements,
            python=self.python,
            has_archives=True,
        )


def version_packages(
    text: str, *, python: str | None, latest: Environment | None = None
) -> VersionPackages:
    """Return the packages of a requirements file, or of a file of conda.

    Without `python` it is that of `latest`, the packages of the version before. Raises InvalidInput
    for a line that cannot be used, for no packages, and for a Python that no node has, or any
    beside conda. Archives that lines name by digest are not looked up.
    """
    if is_conda_text(text):
        conda = _conda_source(text)
        if python is not None:
            raise python_of_conda(python)
        return VersionPackages(conda.requirements, conda.environment.python, conda)
    require_python(python)
    lines = normalised(text, has_archives=True)
    if not package_lines(lines):
        raise no_packages("requirements", "The requirements name no package.")
    return VersionPackages(lines, python or python_before(latest))


def python_before(latest: Environment | None) -> str:
    """Return the Python of the version before, or of the installation if that has conda's."""
    if latest is None or latest.conda:
        return default_python()
    return latest.python


def no_packages(field: str, message: str) -> InvalidInput:
    """Return the error for an environment without packages."""
    return InvalidInput(
        message,
        code="no_packages",
        field=field,
        next_step="Write one package a line, such as scikit-learn==1.7.0.",
    )


def _conda_source(text: str) -> CondaSource:
    try:
        content = conda_file(text, "the requirements")
        lines = canonical(parse_canonical(pip_text(content), has_archives=True))
    except RequirementRefused as error:
        raise refused_requirement(error) from error
    return CondaSource(content.environment, lines)


def python_of_conda(python: str, source: str = "a conda environment") -> InvalidInput:
    """Return the error for a version of Python that is chosen beside packages of conda."""
    return InvalidInput(
        f"The Python of {source} comes from conda, so Python {python} cannot be chosen.",
        code="python_in_conda",
        field="python",
        next_step=f"Write python={python} below dependencies, and leave the Python out.",
    )


def document_of(environment: Environment) -> str:
    """Return the packages as a file that makes the same version again."""
    if not environment.conda:
        return environment.requirements
    return conda_document(CondaEnvironment.from_text(environment.conda), environment.requirements)


def channels_of(environment: Environment) -> list[str]:
    """Return the addresses of the channels of conda, none for packages of pip alone."""
    if not environment.conda:
        return []
    return [*CondaEnvironment.from_text(environment.conda).channels]


def frozen(environment: Environment) -> str:
    """Return the exact packages of the first build as a file, empty before it."""
    if not environment.conda or not environment.locked:
        return environment.locked
    return frozen_conda(environment.locked, environment.requirements)
