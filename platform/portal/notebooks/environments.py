"""Environment of a notebook server: the installation's, a named one, or its own packages."""

from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion
from portal.compute.services.conda_environments import conda_with, use_conda
from portal.compute.services.environments import (
    default_python,
    name_of,
    normalised,
    options_of,
    package_lines,
    use_environment,
)
from portal.compute.services.named_environments import default_version_of, resolve_environment
from slipway.schemas.training import PackagesOut

# Packages that a server imports or offers to its user. The user's requirements may pin versions.
_SERVER = (
    *("ipykernel", "ipywidgets", "jupyterhub>=6,<7", "jupyterlab", "httpx>=0.28", "mlflow"),
    *("numpy", "platformdirs>=4.3", "pyarrow", "pydantic>=2.12", "rich>=14", "typer>=0.28"),
)


def chosen_version(
    *, project: Project, requirements: str, reference: str | None
) -> EnvironmentVersion | None:
    """Return the version of the named environment of a new server.

    None if it has requirements of its own, or runs in the environment of the installation. Raises
    InvalidInput for an environment that does not exist or is archived.
    """
    version = None
    if reference is not None:
        version = resolve_environment(project=project, reference=reference)
    if package_lines(normalised(requirements)):
        return None
    return default_version_of(project) if reference is None else version


def describe_packages(
    *, requirements: str, reference: str | None, version: EnvironmentVersion | None
) -> PackagesOut:
    """Return where the packages of a new server come from, as the quote shows it."""
    count = len(package_lines(normalised(requirements)))
    if version is not None:
        source = f"of the environment {version.reference}"
        if reference is None:
            source = f"of {version.reference}, the project's default environment"
        count = version.packages
    elif count:
        source = "of the request"
    else:
        return PackagesOut(
            explanation="The environment of the installation.",
            is_installed=True,
            python=default_python(),
        )
    packages = f"{count} package{'' if count == 1 else 's'}"
    unused = reference is not None and version is None
    others = f" The environment {reference} is not used." if unused else ""
    python = default_python() if version is None else version.environment.python
    own = "" if python == default_python() else f" Python {python} of the environment."
    if version is not None and version.is_conda:
        own = f" Python {python} of conda." if python else " With the Python of conda."
    return PackagesOut(
        explanation=f"{packages} {source}, and those of JupyterLab.{others}{own}",
        count=count,
        environment=version and version.reference,
        python=python,
    )


def environment_of(
    *, project: Project, by: User, requirements: str, version: EnvironmentVersion | None
) -> str:
    """Return the digest of the environment, "" for that of every node. Raises InvalidInput.

    What a server itself needs is added to the packages of a named environment too.
    """
    if version is not None and version.is_conda:
        source = conda_with(version.environment, _SERVER)
        return use_conda(project=project, by=by, source=source).digest
    # Only a version has archives, and the project's own.
    text = requirements if version is None else version.environment.requirements
    has_archives = version is not None
    canonical = normalised(text, has_archives=has_archives)
    lines = package_lines(canonical)
    if not lines:
        return ""
    named = set(map(name_of, lines))
    missing = [need for need in _SERVER if name_of(need) not in named]
    return use_environment(
        project=project,
        by=by,
        requirements="\n".join([*options_of(canonical), *lines, *missing]),
        python=None if version is None else version.environment.python,
        has_archives=has_archives,
    ).digest
