"""The packages of a job, and the environment that it runs in."""

from dataclasses import replace
from functools import cache, partial

from portal.accounts.models import Project, User
from portal.compute.models import Environment, EnvironmentVersion
from portal.compute.services.conda_environments import use_conda
from portal.compute.services.environments import check_secrets, default_python, use_environment
from portal.compute.services.image_environments import use_image
from portal.compute.services.named_environments import default_version_of, resolve_environment
from portal.compute.services.pools import usable_pool
from portal.compute.services.version_packages import python_of_conda
from portal.core.errors import InvalidInput
from portal.training.archive_sources import StoredArchive
from portal.training.conda_sources import refused_in_container
from portal.training.job_package_set import JobPackages
from portal.training.models import Job, Snapshot
from portal.training.project_folder import ProjectFolder
from portal.training.python_versions import python_of
from portal.training.requirement_sources import packages_of
from portal.workloads.services.package_archives import (
    ArchiveBytes,
    add_archives,
    check_archives,
)
from slipway.schemas.backends import BACKENDS
from slipway.schemas.training import JobIn


def job_packages(project: Project, requested: JobIn, snapshot: Snapshot | None) -> JobPackages:
    """Return the packages of a job.

    Those of the request come first, then the environment that it names, files in the code, the
    project's default environment, and the installation. Raises InvalidInput.
    """
    reference, names_own = requested.environment, bool(requested.requirements)
    in_container = not BACKENDS[requested.backend].uses_pythons
    version = None
    if reference is not None:
        version = resolve_environment(project=project, reference=reference)
        if not names_own and requested.requirements_file is None:
            _require_python(requested.python, reference, version)
            if version is not None and version.is_conda and in_container:
                raise refused_in_container(f"the environment {version.reference}", "environment")
            if version is not None:
                return JobPackages.in_named(version)
            return JobPackages(explanation="The environment of the installation.")
    folder = None if snapshot is None else ProjectFolder(snapshot)
    python = cache(
        partial(
            python_of,
            requested=requested.python,
            script=requested.script,
            folder=folder,
            backend=requested.backend,
        )
    )
    packages = packages_of(
        requirements=requested.requirements,
        file=requested.requirements_file,
        script=requested.script,
        folder=folder,
        python=python,
        backend=requested.backend,
        pool=usable_pool(project, requested.pool),
    )
    check_secrets(project, packages.requirements)
    check_archives(
        project=project,
        requirements=packages.requirements,
        submitted=[archive.sha256 for archive in packages.archives],
    )
    if requested.python is not None:
        python()
        if packages.conda is not None:
            raise python_of_conda(requested.python, packages.file or "a conda environment")
    if reference is not None:
        sentence = f"The environment {reference} is not used."
        return replace(packages, explanation=f"{packages.explanation} {sentence}".strip())
    if requested.requirements is None and requested.requirements_file is None:
        default = default_version_of(project)
        if default is None:
            return packages
        if default.is_conda and in_container:
            return packages.without_default(default)
        return packages.in_default(default, python)
    return packages


def _require_python(python: str | None, reference: str, version: EnvironmentVersion | None) -> None:
    """Raise InvalidInput unless a requested Python is that of the environment."""
    if python is not None and version is not None and version.is_conda:
        raise python_of_conda(python, f"the environment {reference}")
    own = default_python() if version is None else version.environment.python
    if python is not None and python != own:
        raise InvalidInput(
            f"The environment {reference} has Python {own}, not {python}.",
            code="other_python",
            field="python",
            next_step="Leave the Python out, or name another environment.",
        )


def environment_digest(
    project: Project, by: User, packages: JobPackages, cloned_from: Job | None
) -> str:
    """Return the digest of the environment to run in, empty for the installation's own.

    A clone keeps the version of Python its original had, so that it is the same environment.
    """
    if not packages.needs_environment:
        return ""
    add_archives(project=project, archives=[bytes_of(archive) for archive in packages.archives])
    if packages.version is not None:
        return packages.version.environment.digest
    if packages.conda is not None:
        return use_conda(project=project, by=by, source=packages.conda).digest
    if packages.image is not None:
        return use_image(project=project, by=by, source=packages.image).digest
    python = packages.python
    if cloned_from is not None and not packages.chooses_python:
        same = Environment.objects.filter(
            digest=cloned_from.workload.environment, requirements=packages.requirements
        )
        python = same.values_list("python", flat=True).first() or python
    return use_environment(
        project=project,
        by=by,
        requirements=packages.requirements,
        python=python,
        has_archives=True,
    ).digest


def bytes_of(archive: StoredArchive) -> ArchiveBytes:
    """Return where the bytes of an archive of a snapshot are."""
    packed = archive.packed
    return ArchiveBytes(
        *(archive.sha256, archive.file_name), packed.file, packed.start, packed.size_bytes
    )
