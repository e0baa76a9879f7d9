"""The packages of a named environment: a text, or files of a code snapshot as a job has them."""

from functools import cache, partial

from portal.accounts.models import Project
from portal.compute.models import Environment
from portal.compute.services.environments import check_secrets, package_lines
from portal.compute.services.version_packages import (
    VersionPackages,
    no_packages,
    python_before,
    python_of_conda,
    version_packages,
)
from portal.core.errors import InvalidInput
from portal.training.image_sources import image_backends
from portal.training.project_folder import ProjectFolder
from portal.training.python_versions import JobPython, python_of
from portal.training.requirement_sources import packages_of
from portal.training.services.job_packages import bytes_of
from portal.training.services.snapshots import no_such_snapshot, snapshot_of
from portal.workloads.services.package_archives import add_archives, check_archives
from slipway.requirement_files.dockerfile import is_dockerfile
from slipway.schemas.backends import DEFAULT_BACKEND


def named_packages(
    *,
    project: Project,
    requirements: str | None = None,
    snapshot: str | None = None,
    requirements_file: str | None = None,
    python: str | None = None,
    latest: Environment | None = None,
) -> VersionPackages:
    """Return the packages of a version of a named environment.

    They come from the text `requirements`, which may name files of the `snapshot` with that digest,
    from `requirements_file`, a path in it, or from the files at its top. Wheels and source archives
    among them are recorded in the project. `latest` is the environment of the version before.
    Raises InvalidInput, naming the field.
    """
    if requirements is not None and requirements_file is not None:
        raise InvalidInput(
            "Both requirements and requirements_file are given.",
            code="two_sources",
            field="requirements_file",
            next_step="Give the text, or the path of a file in the snapshot.",
        )
    if snapshot is not None:
        return _of_snapshot(project, snapshot, requirements, requirements_file, python, latest)
    if requirements_file is not None:
        raise InvalidInput(
            "requirements_file is a path in a snapshot, and there is none.",
            code="no_such_snapshot",
            field="snapshot",
            next_step="Upload the folder that has the file (`slipway env create NAME --code "
            "FOLDER` does this), or send the text of the file as requirements.",
        )
    packages = version_packages(requirements or "", python=python, latest=latest)
    check_archives(project=project, requirements=packages.requirements)
    return packages


def _of_snapshot(
    project: Project,
    digest: str,
    requirements: str | None,
    file: str | None,
    python: str | None,
    latest: Environment | None,
) -> VersionPackages:
    snapshot = snapshot_of(project, digest)
    if snapshot is None:
        raise no_such_snapshot()
    if file is not None and is_dockerfile(file):
        raise _of_dockerfile(file)
    folder = ProjectFolder(snapshot)
    at = file or ""
    packages = packages_of(
        requirements=requirements,
        file=file,
        script=at,
        folder=folder,
        python=cache(partial(_python_of, folder, at, python, latest)),
        backend=DEFAULT_BACKEND,
    )
    named = [archive.sha256 for archive in packages.archives]
    check_archives(project=project, requirements=packages.requirements, submitted=named)
    check_secrets(project, packages.requirements)
    if packages.conda is None and not package_lines(packages.requirements):
        raise _nothing_named(requirements, file)
    if packages.conda is not None and python is not None:
        raise python_of_conda(python, packages.file or "a conda environment")
    add_archives(project=project, archives=map(bytes_of, packages.archives))
    if packages.conda is not None:
        own = packages.conda.environment.python
        return VersionPackages(packages.requirements, own, packages.conda)
    return VersionPackages(packages.requirements, packages.python)


def _python_of(
    folder: ProjectFolder, at: str, requested: str | None, latest: Environment | None
) -> JobPython:
    """Return the Python of the request, or of the version before if the folder allows it."""
    own = python_of(requested=requested, script=at, folder=folder, backend=DEFAULT_BACKEND)
    before = python_before(latest)
    if requested is None and latest is not None and own.accepts(before):
        return JobPython(before)
    return own


def _nothing_named(requirements: str | None, file: str | None) -> InvalidInput:
    if requirements is not None:
        return no_packages("requirements", "The requirements name no package.")
    if file is not None:
        return no_packages("requirements_file", f"{file} names no package.")
    return no_packages("snapshot", "No file at the top of the folder names a package.")


def _of_dockerfile(file: str) -> InvalidInput:
    return InvalidInput(
        f"{file} builds an image, and no named environment.",
        code="image_in_environment",
        field="requirements_file",
        next_step="Name a requirements file. A job uses the Dockerfile in its folder with "
        f"--backend {' or '.join(image_backends())}.",
    )
