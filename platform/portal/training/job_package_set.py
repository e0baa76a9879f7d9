"""The packages of a job, and the sentences that say where they come from."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from portal.compute.models import EnvironmentVersion
from portal.compute.services.conda_environments import CondaSource, conda_source_of
from portal.compute.services.environments import default_python, package_lines
from portal.compute.services.image_environments import ImageSource
from portal.training.archive_sources import StoredArchive
from portal.training.conda_sources import about_python
from portal.training.python_versions import JobPython
from slipway.schemas.training import PackagesOut


@dataclass(frozen=True)
class JobPackages:
    """Packages of a job, and the sentence that says where they come from.

    `requirements` are canonical, empty if there are none, and with `is_installed` the environment
    of the installation has them all. `file` is the path that they come from, empty for those of
    the request. `python_path` are folders of the code that its scripts import from. `unread` are
    files that were found and do not count. `version` is that of a named environment, which has
    them. `python` is the version of Python, which the request or a file names if
    `chooses_python`. With `image`, the job runs in an image that is built from a Dockerfile, with
    `conda` in an environment of conda, which both bring their own Python. `archives` are wheels and
    source archives in the code that the requirements name by their digests.
    """

    requirements: str = ""
    file: str = ""
    is_installed: bool = False
    explanation: str = ""
    python_path: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    version: EnvironmentVersion | None = None
    python: str = field(default_factory=default_python)
    chooses_python: bool = False
    image: ImageSource | None = None
    conda: CondaSource | None = None
    archives: tuple[StoredArchive, ...] = ()

    @property
    def needs_environment(self) -> bool:
        """True if an environment is built for these packages."""
        is_usual = self.python == default_python()
        is_built = bool(self.requirements) and not self.is_installed
        return not is_usual or is_built or self.has_own_python

    @property
    def has_own_python(self) -> bool:
        """True if the environment brings its Python along, which no node needs to have."""
        return self.image is not None or self.conda is not None

    @property
    def node_python(self) -> str:
        """The version of Python that a node needs to build the environment, empty without one."""
        return self.python if self.needs_environment and not self.has_own_python else ""

    @classmethod
    def in_named(cls, version: EnvironmentVersion) -> "JobPackages":
        """Return the packages of a named environment, which the request names."""
        return cls(
            requirements=version.environment.requirements,
            explanation=f"{count_of_packages(version.packages)} of the environment "
            f"{version.reference}; requirements files in the code are not used."
            f"{about_python(version)}",
            version=version,
            python=version.environment.python,
            conda=conda_source_of(version.environment),
        )

    def in_default(
        self, version: EnvironmentVersion, python: Callable[[], JobPython]
    ) -> "JobPackages":
        """Return these packages, or those of the project's default environment without any.

        That is not used either if it has another Python than the job needs.
        """
        has_own = bool(self.requirements) or self.has_own_python
        if has_own or not python().accepts(version.environment.python):
            return self.without_default(version)
        others = self.explanation.removesuffix(python().explanation).rstrip()
        others = others.removeprefix(without_packages()).removeprefix(OF_INSTALLATION)
        return replace(
            self,
            requirements=version.environment.requirements,
            explanation=f"{count_of_packages(version.packages)} of {version.reference}, the "
            f"project's default environment.{others}{about_python(version)}",
            version=version,
            python=version.environment.python,
            conda=conda_source_of(version.environment),
        )

    def without_default(self, version: EnvironmentVersion) -> "JobPackages":
        """Return these packages with the sentence that the project's default is not used."""
        sentence = f"The project's default environment {version.named} is not used."
        return replace(self, explanation=f"{self.explanation} {sentence}")

    def as_schema(self) -> PackagesOut:
        """Return the packages as the API shows them."""
        return PackagesOut(
            explanation=self.explanation,
            file=self.file or None,
            count=len(package_lines(self.requirements))
            + (0 if self.conda is None else self.conda.environment.count),
            is_installed=not self.needs_environment,
            not_used=[*self.unread],
            environment=self.version and self.version.reference,
            python=self._shown_python(),
        )

    def _shown_python(self) -> str:
        if self.conda is not None:
            return self.python if self.version else self.conda.environment.python
        return "" if self.image is not None else self.python


OF_INSTALLATION = "The environment of the installation."


def without_packages() -> str:
    """Return the sentence on a job without packages in another Python than the usual one."""
    return f"No packages, because those of the installation are for Python {default_python()}."


def count_of_packages(count: int) -> str:
    """Return such as `2 packages`."""
    return f"{count} package{'' if count == 1 else 's'}"
