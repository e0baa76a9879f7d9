"""Environments: from a `requirements.txt` to a digest, and the build reports of agents."""

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.image_registry import record_image
from portal.compute.lifecycle import BuildState, build_sources
from portal.compute.logs import log_store, stored_text
from portal.compute.models import (
    BuildRequest,
    Environment,
    EnvironmentBuild,
    Node,
    ProjectEnvironment,
)
from portal.compute.signals import BuildChanged, build_changed
from portal.core import clock
from portal.core.errors import InvalidInput, NotFound
from slipway.requirement_files.conda import is_conda_text
from slipway.requirement_files.conda_packages import python_of_locked
from slipway.requirement_files.lines import (
    INDEXES,
    LineKind,
    RequirementLine,
    RequirementRefused,
    parse_canonical,
)
from slipway.schemas.agent import EnvironmentReport
from slipway.schemas.base import forbidden_character

MAX_REQUIREMENTS = 1000
MAX_NAME = 200
MAX_BUILD_LOG_BYTES = 64 * 1024**2
_HASH = re.compile(r"\s--hash[= ](sha256:[0-9a-f]{64})(?=\s|\Z)")
_ANY_HASH = re.compile(r"\s--hash[= ]\S+")


def default_python() -> str:
    """Return the default Python version of an environment."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def normalised(requirements: str, *, has_archives: bool = False) -> str:
    """Return requirements in canonical form, sorted, one a line.

    Options come first: indexes, which an administrator must allow, versions that packages must have
    if they are installed (`--constraint`), and whether wheels are used. With `has_archives` they
    may name archives of the project by digest. Raises InvalidInput, naming the line and the reason.
    """
    bad = forbidden_character(requirements, multiline=True)
    if bad is not None:
        raise InvalidInput(
            f"The requirements contain the character U+{ord(bad):04X}, which is not allowed.",
            field="requirements",
            next_step="Remove control characters and text-direction marks.",
        )
    if is_conda_text(requirements):
        raise InvalidInput(
            "These are packages of conda, and only packages of pip can be listed here.",
            code="bad_requirement",
            field="requirements",
            next_step="Create an environment from them with "
            "`slipway env create NAME --file environment.yml`, and choose it by its name.",
        )
    try:
        return canonical(parse_canonical(requirements, has_archives=has_archives))
    except RequirementRefused as error:
        raise refused_requirement(error) from error


def refused_requirement(error: RequirementRefused) -> InvalidInput:
    """Return the error of the request for a line that cannot be used."""
    return InvalidInput(
        str(error), code="bad_requirement", field="requirements", next_step=error.next_step
    )


def canonical(requirements: Iterable[RequirementLine]) -> str:
    """Return lines that name no files in canonical form.

    Raises RequirementRefused, and InvalidInput for too many requirements.
    """
    requirements = list(requirements)
    _check_accounts(requirements)
    lines = {_canonical_line(line) for line in requirements}
    if len(lines) > MAX_REQUIREMENTS:
        raise InvalidInput(
            f"There are {len(lines)} requirements; at most {MAX_REQUIREMENTS} are allowed.",
            field="requirements",
            next_step="Remove packages that others already depend on.",
        )
    return "\n".join(sorted(lines))


def _check_accounts(requirements: Iterable[RequirementLine]) -> None:
    """Raise RequirementRefused for two accounts at one host: pip and uv look them up by host."""
    accounts: dict[str, str] = {}
    for line in requirements:
        if line.account and accounts.setdefault(host_of(line), line.account) != line.account:
            raise line.refused(
                f"another line has another account for {host_of(line)}",
                "Use one account for all indexes of a host.",
            )


def host_of(line: RequirementLine) -> str:
    """Return the host of the address of an index, without its port."""
    return urlsplit(line.address).hostname or ""


def secrets_named_by(requirements: str) -> set[str]:
    """Return the names of the project's secrets that canonical requirements name."""
    if "${" not in requirements:
        return set()
    lines = parse_canonical(requirements, has_archives=True)
    return {name for line in lines for name in line.secrets}


def archives_named_by(requirements: str) -> dict[str, str]:
    """Return the digests of the archives that canonical requirements name, with file names."""
    if "#sha256=" not in requirements:
        return {}
    lines = parse_canonical(requirements, has_archives=True)
    return {line.sha256: line.archive.file_name for line in lines if line.sha256 and line.archive}


def package_lines(requirements: str) -> list[str]:
    """Return the lines of canonical requirements that require a package, without options."""
    return [line for line in requirements.splitlines() if not line.startswith("-")]


def name_of(line: str) -> str:
    """Return the canonical name of the package of a canonical line."""
    return canonicalize_name(Requirement(line.partition(" --hash=")[0]).name)


def options_of(requirements: str) -> list[str]:
    """Return the lines of canonical requirements that are options."""
    return [line for line in requirements.splitlines() if line.startswith("-")]


def _canonical_line(line: RequirementLine) -> str:
    if line.kind in INDEXES:
        return f"{line.kind.value} {_allowed_index(line)}"
    if line.kind == LineKind.CONSTRAINT:
        return f"{line.kind.value} {_canonical_package(line)}"
    if line.kind in (LineKind.PACKAGE, LineKind.ARCHIVE):
        return _canonical_package(line)
    return line.text


def _allowed_index(line: RequirementLine) -> str:
    """Return the address of an index if it is, or is below, one that an administrator allows.

    It keeps its account, which names secrets of the project.
    """
    parts = urlsplit(line.address)
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    path = parts.path.rstrip("/")
    allowed = [index.rstrip("/") for index in settings.SLIPWAY_PACKAGE_INDEXES.split()]
    plain = f"{parts.scheme}://{host}{path}"
    is_plain = not (parts.query or parts.fragment) and not re.search(r"%|//|/\.\.?(?:/|$)", path)
    if is_plain and any(plain == index or plain.startswith(f"{index}/") for index in allowed):
        return plain.replace("//", f"//{line.account}@", 1) if line.account else plain
    raise line.refused(
        f"{host} is not among the package indexes that an administrator allows",
        f"Allowed are: {' '.join(allowed)}. Ask an administrator to add it to "
        "SLIPWAY_PACKAGE_INDEXES, or to the pip configuration of the nodes, which every build uses."
        if allowed
        else "Ask an administrator to add it to SLIPWAY_PACKAGE_INDEXES, or to the pip "
        "configuration of the nodes, which every build uses.",
    )


def _canonical_package(line: RequirementLine) -> str:
    hashes = sorted(set(_HASH.findall(line.value)))
    text = _ANY_HASH.sub("", line.value).strip()
    if not hashes and text != line.value.strip():
        raise line.refused("only sha256 hashes are supported", "Hash it with sha256.")
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise line.refused(
            "its versions or its marker are not valid", "For example: scikit-learn==1.7.0"
        ) from error
    if len(requirement.name) > MAX_NAME:
        raise line.refused(f"its name is longer than {MAX_NAME} characters", "Check the name.")
    if line.kind == LineKind.CONSTRAINT and (requirement.url or requirement.extras):
        raise line.refused(
            "a constraint has a name and versions, and no address or extras",
            "Move it to the requirements.",
        )
    parts: list[str] = [canonicalize_name(requirement.name)]
    if requirement.extras:
        parts.append(f"[{','.join(sorted(map(canonicalize_name, requirement.extras)))}]")
    parts.append(f" @ {requirement.url}" if requirement.url else str(requirement.specifier))
    if requirement.marker:
        parts.append(f" ; {requirement.marker}")
    return "".join(parts) + "".join(f" --hash={value}" for value in hashes)


def digest_of(requirements: str, python: str) -> str:
    """Return the hex SHA-256 that names an environment of normalised requirements."""
    return hashlib.sha256(f"slipway-environment-1\n{python}\n{requirements}".encode()).hexdigest()


def use_environment(
    *,
    project: Project,
    by: User,
    requirements: str,
    python: str | None = None,
    has_archives: bool = False,
) -> Environment:
    """Return the environment of these requirements, now used by the project too.

    With `has_archives` the caller has checked that the project has the archives that they name.
    Raises InvalidInput for requirements that cannot be used, or that name an unknown secret.
    """
    lines = normalised(requirements, has_archives=has_archives)
    check_secrets(project, lines)
    python = python or default_python()
    return add_environment(
        *(project, by, digest_of(lines, python)), {"requirements": lines, "python": python}
    )


def add_environment(
    project: Project, by: User, digest: str, content: Mapping[str, Any]
) -> Environment:
    """Return the environment with this digest, created unless it is there, for the project too."""
    with transaction.atomic():
        environment, _ = Environment.objects.get_or_create(digest=digest, defaults=content)
        _, added = ProjectEnvironment.objects.get_or_create(
            project=project, environment=environment, defaults={"added_by": by}
        )
        if added:
            audit.record(
                "environment.add",
                kind="environment",
                target=environment,
                label=environment.digest[:12],
                project=project,
            )
    return environment


def check_secrets(project: Project, requirements: str) -> None:
    """Raise InvalidInput for canonical requirements that name a secret the project lacks."""
    names = secrets_named_by(requirements)
    known = project.secrets.filter(name__in=names).values_list("name", flat=True) if names else ()
    for name in sorted(names.difference(known)):
        raise InvalidInput(
            f"The requirements name the secret {name}, which the project does not have.",
            code="unknown_secret",
            field="requirements",
            next_step=f"Add it on the page Secrets, or with slipway secret set {name}.",
        )


def build_log_key(digest: str, build: EnvironmentBuild) -> str:
    """Return the key of the log of the current build of an environment on a node."""
    return f"environments/{digest}/{build.node_id}.{build.project_id}.{build.number}.log"


def accept_build_report(
    *, node: Node, project: Project, digest: str, report: EnvironmentReport
) -> int:
    """Record the state of a build and a chunk of its log. Return the offset to continue from.

    Reports of an earlier build on the same node are ignored. Idempotent. The caller checks that the
    node runs something of the project in the environment. Raises NotFound for no environment.
    """
    with transaction.atomic():
        environment = Environment.objects.filter(digest=digest).first()
        if environment is None:
            raise NotFound
        build = _build_of(environment, node, project, report)
        if report.build != build.number:
            return report.log_offset + len(report.log.encode("utf-8", "replace"))
        target = BuildState(report.state)
        moved = EnvironmentBuild.objects.filter(
            pk=build.pk, number=report.build, state__in=build_sources(target)
        ).update(state=target, size_bytes=report.size_bytes, changed_at=clock.now())
        if moved and target == BuildState.READY and report.locked:
            locked = stored_text(report.locked, limit=262_144)
            Environment.objects.filter(pk=environment.pk, locked="").update(locked=locked)
            if environment.conda and (python := python_of_locked(locked)):
                # Only a solver tells it if the file names no version.
                Environment.objects.filter(pk=environment.pk, python="").update(python=python)
        if target == BuildState.READY and report.image:
            record_image(build, report)
        if target != BuildState.BUILDING:
            requests = BuildRequest.objects.filter(project=project, environment=environment)
            requests.filter(node=node).delete()
        build_changed.send_on_commit(BuildChanged(digest, node.pk))
    return _append_log(build_log_key(digest, build), report)


def _append_log(key: str, report: EnvironmentReport) -> int:
    data = report.log.encode("utf-8", "replace")
    end = report.log_offset + len(data)
    if end > MAX_BUILD_LOG_BYTES:
        return end  # skip the rest: a log is stored up to its limit
    return log_store().append(key, report.log_offset, data)


def _build_of(
    environment: Environment, node: Node, project: Project, report: EnvironmentReport
) -> EnvironmentBuild:
    """Return the build of the report, starting a new build when its number is higher."""
    build, _ = EnvironmentBuild.objects.get_or_create(
        environment=environment,
        node=node,
        project=project,
        defaults={"number": report.build, "changed_at": clock.now()},
    )
    if report.build > build.number:
        EnvironmentBuild.objects.filter(pk=build.pk, number__lt=report.build).update(
            number=report.build,
            state=BuildState.BUILDING,
            size_bytes=None,
            changed_at=clock.now(),
        )
        build.refresh_from_db()
    return build
