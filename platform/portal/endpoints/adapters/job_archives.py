"""Wheels and source archives of the job that logged a model, for the packages of the model.

MLflow writes the name and the version of a package into the requirements of a model. One that came
from the code of the job is on no index, or is another package there.
"""

from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from portal.accounts.models import Project
from portal.compute.models import Environment
from portal.experiments.models import Tag
from portal.experiments.services.job_runs import JOB_TAG
from portal.workloads.models import Workload
from slipway.requirement_files.lines import parse_canonical
from slipway.requirement_files.local_archives import LocalArchive


def with_job_archives(project: Project, run_id: str, requirements: str) -> str:
    """Return the requirements of a model with the archives that its job installed.

    A line whose name and version are those of an archive becomes that archive. The other archives
    of the job are then where packages may come from, because one may depend on another.
    """
    archives = _archives_of_job(project, run_id)
    lines, used = [], set[str]()
    for line in requirements.splitlines() if archives else ():
        archive = next((known for known in archives if _is_required(known, line)), None)
        if archive is None:
            lines.append(line)
            continue
        used.add(archive.sha256)
        lines.append(replace(archive, marker="").canonical(archive.sha256))
    if not used:
        return requirements
    others = [archive for archive in archives if archive.sha256 not in used]
    links = [replace(archive, name="").canonical(archive.sha256) for archive in others]
    return "\n".join([*links, *lines])


def _archives_of_job(project: Project, run_id: str) -> list[LocalArchive]:
    # The run's owner can write any tag: only a job of this project is accepted.
    tags = Tag.objects.filter(run=run_id, key=JOB_TAG) if run_id else ()
    ids = [tag.value or "" for tag in tags]
    digests = Workload.objects.filter(project=project, pk__in=ids).values_list("environment")
    environment = Environment.objects.filter(digest__in=digests).first()
    if environment is None or "#sha256=" not in environment.requirements:
        return []
    lines = parse_canonical(environment.requirements, has_archives=True)
    archives = [line.archive for line in lines if line.sha256 and line.archive is not None]
    named = [(archive, _named(archive.file_name)) for archive in archives]
    return [
        replace(archive, name=archive.name or (parsed[0] if parsed else ""))
        for archive, parsed in named
        if archive.name or parsed
    ]


def _is_required(archive: LocalArchive, line: str) -> bool:
    try:
        requirement = Requirement(line.partition("#")[0].strip())
    except InvalidRequirement:
        return False
    if requirement.url or canonicalize_name(requirement.name) != canonicalize_name(archive.name):
        return False
    named = _named(archive.file_name)
    return named is None or _allows(requirement, named[1])


def _allows(requirement: Requirement, version: Version) -> bool:
    """Return whether the versions allow one, with or without its local part (`+cpu`)."""
    specifier = requirement.specifier
    return specifier.contains(version, prereleases=True) or specifier.contains(
        version.public, prereleases=True
    )


def _named(file_name: str) -> tuple[str, Version] | None:
    try:
        if file_name.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(file_name)
            return name, version
        return parse_sdist_filename(file_name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
