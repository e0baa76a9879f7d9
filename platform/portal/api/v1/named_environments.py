"""Named environments of a project: packages under a name, in numbered versions."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchQuery, page_of, user_out
from portal.api.v1.workload_serializers import build_out
from portal.compute.gates import EnvironmentRole, gated_environment
from portal.compute.models import (
    Environment,
    EnvironmentBuild,
    EnvironmentVersion,
    NamedEnvironment,
)
from portal.compute.services import named_environments as services
from portal.compute.services.named_environments import BuildSummary
from portal.compute.services.version_packages import (
    VersionPackages,
    channels_of,
    document_of,
    frozen,
)
from portal.compute.services.vulnerabilities import as_document, audit_of
from portal.core.pagination import paginate
from portal.training.services.named_packages import named_packages
from portal.workloads.builds_ahead import request_builds, requested_nodes
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.environments import (
    DefaultEnvironmentIn,
    DefaultEnvironmentOut,
    EnvironmentAuditOut,
    EnvironmentVersionDetail,
    EnvironmentVersionIn,
    EnvironmentVersionOut,
    NamedEnvironmentEdit,
    NamedEnvironmentIn,
    NamedEnvironmentOut,
    VersionPackagesIn,
)

router = Router(tags=["Named environments"])
_SEE = EnvironmentRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EnvironmentRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_ENVIRONMENTS = "/projects/{project}/named-environments"
_ENVIRONMENT = f"{_ENVIRONMENTS}/{{environment}}"
_DEFAULT = "/projects/{project}/default-environment"
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]


class EnvironmentsQuery(SearchQuery):
    """Environments whose names contain `q`: those in use, or with `archived` the others."""

    archived: bool = False


def _out(
    named: NamedEnvironment, version: EnvironmentVersion, build: BuildSummary
) -> NamedEnvironmentOut:
    return NamedEnvironmentOut(
        name=named.name,
        description=named.description,
        version=version.number,
        python=version.environment.python,
        packages=version.packages,
        digest=version.environment.digest,
        is_conda=version.is_conda,
        build=build.value,
        is_default=named.is_default,
        created_by=user_out(named.created_by),
        created_at=named.created_at,
        archived_at=named.archived_at,
    )


def _fresh(named: NamedEnvironment) -> NamedEnvironmentOut:
    version = services.version_of(named, named.version)
    summaries = services.build_summaries(named.project, [version.environment_id])
    return _out(named, version, summaries[version.environment_id])


def _packages(
    project: Project, payload: VersionPackagesIn, latest: Environment | None = None
) -> VersionPackages:
    return named_packages(
        project=project,
        requirements=payload.requirements,
        snapshot=payload.snapshot,
        requirements_file=payload.requirements_file,
        python=payload.python,
        latest=latest,
    )


def _version_out(version: EnvironmentVersion, build: BuildSummary) -> EnvironmentVersionOut:
    return EnvironmentVersionOut(
        reference=version.reference,
        number=version.number,
        python=version.environment.python,
        packages=version.packages,
        digest=version.environment.digest,
        is_conda=version.is_conda,
        build=build.value,
        created_by=user_out(version.created_by),
        created_at=version.created_at,
    )


def _detail(named: NamedEnvironment, version: EnvironmentVersion) -> EnvironmentVersionDetail:
    environment = version.environment
    builds = list(
        EnvironmentBuild.objects.filter(environment=environment, project=named.project)
        .select_related("node")
        .order_by("pk")
    )
    summary = services.build_summary(build.state for build in builds)
    return EnvironmentVersionDetail(
        **_version_out(version, summary).model_dump(),
        requirements=environment.requirements,
        document=document_of(environment),
        channels=channels_of(environment),
        locked=frozen(environment) if builds else "",
        builds=[build_out(environment, build) for build in builds],
        requested=requested_nodes(project=named.project, environment=environment),
        audit=EnvironmentAuditOut.model_validate(
            as_document(audit_of(environment, is_built=bool(builds)))
        ),
    )


@router.get(
    _ENVIRONMENTS,
    auth=gate(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=PageOf[NamedEnvironmentOut],
)
def list_named_environments(
    request: HttpRequest, project: str, query: Query[EnvironmentsQuery]
) -> PageOf[NamedEnvironmentOut]:
    """List the named environments of a project, newest first."""
    project_row = gated_project(request)
    environments = NamedEnvironment.objects.of_project(project_row).matching(query.q)
    environments = environments.filter(archived_at__isnull=not query.archived)
    page = paginate(environments, cursor=query.cursor, limit=query.limit)
    versions = services.latest_versions(page.items)
    summaries = services.build_summaries(
        project_row, [version.environment_id for version in versions.values()]
    )

    def serialize(named: NamedEnvironment) -> NamedEnvironmentOut:
        version = versions[named.pk]
        return _out(named, version, summaries[version.environment_id])

    return page_of(page, serialize)


@router.post(
    _ENVIRONMENTS,
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response={201: NamedEnvironmentOut},
)
def create_named_environment(
    request: HttpRequest, project: str, payload: NamedEnvironmentIn
) -> Status[NamedEnvironmentOut]:
    """Create a named environment with its first version. It is built when something runs in it."""
    project_row = gated_project(request)
    named = services.create_named_environment(
        project=project_row,
        by=require_principal(request).user,
        name=payload.name,
        description=payload.description,
        packages=_packages(project_row, payload),
    )
    return Status(201, _fresh(named))


@router.get(_ENVIRONMENT, auth=gate(_SEE), response=NamedEnvironmentOut)
def get_named_environment(
    request: HttpRequest, project: str, environment: str
) -> NamedEnvironmentOut:
    """Get a named environment."""
    return _fresh(gated_environment(request))


@router.patch(_ENVIRONMENT, auth=gate(_CHANGE), response=NamedEnvironmentOut)
def update_named_environment(
    request: HttpRequest, project: str, environment: str, payload: NamedEnvironmentEdit
) -> NamedEnvironmentOut:
    """Change the description of a named environment."""
    named = gated_environment(request)
    services.describe_named_environment(named=named, description=payload.description)
    return _fresh(named)


@router.get(f"{_ENVIRONMENT}/versions", auth=gate(_SEE), response=PageOf[EnvironmentVersionOut])
def list_environment_versions(
    request: HttpRequest, project: str, environment: str, query: PageParameters
) -> PageOf[EnvironmentVersionOut]:
    """List the versions of a named environment, newest first."""
    named = gated_environment(request)
    versions = EnvironmentVersion.objects.filter(named=named)
    related = versions.select_related("named", "environment", "created_by")
    page = paginate(
        related.defer(*services.LONG_TEXTS),
        cursor=query.cursor,
        limit=query.limit,
    )
    summaries = services.build_summaries(
        named.project, [version.environment_id for version in page.items]
    )
    return page_of(page, lambda row: _version_out(row, summaries[row.environment_id]))


@router.post(
    f"{_ENVIRONMENT}/versions", auth=gate(_CHANGE), response={201: EnvironmentVersionDetail}
)
def create_environment_version(
    request: HttpRequest, project: str, environment: str, payload: EnvironmentVersionIn
) -> Status[EnvironmentVersionDetail]:
    """Add a version with other packages. Jobs that ran in earlier versions keep them."""
    named = gated_environment(request)
    latest = services.version_of(named, named.version).environment
    packages = _packages(named.project, payload, latest)
    version = services.add_version(
        named=named, by=require_principal(request).user, packages=packages
    )
    return Status(201, _detail(named, services.version_of(named, version.number)))


@router.get(
    f"{_ENVIRONMENT}/versions/{{number}}", auth=gate(_SEE), response=EnvironmentVersionDetail
)
def get_environment_version(
    request: HttpRequest, project: str, environment: str, number: Number
) -> EnvironmentVersionDetail:
    """Get a version with its packages, the exact versions once built, and its builds."""
    named = gated_environment(request)
    return _detail(named, services.version_of(named, number))


@router.post(
    f"{_ENVIRONMENT}/versions/{{number}}/build",
    auth=gate(_CHANGE),
    response=EnvironmentVersionDetail,
)
def start_environment_build(
    request: HttpRequest, project: str, environment: str, number: Number
) -> EnvironmentVersionDetail:
    """Request a build of a version from the nodes that take new work, before a job needs it."""
    named = gated_environment(request)
    version = services.version_of(named, number)
    request_builds(version=version, by=require_principal(request).user)
    return _detail(named, version)


@router.post(f"{_ENVIRONMENT}/archive", auth=gate(_CHANGE), response=NamedEnvironmentOut)
def archive_named_environment(
    request: HttpRequest, project: str, environment: str
) -> NamedEnvironmentOut:
    """Archive an environment: nothing new runs in it. Jobs that ran in it stay as they are."""
    named = gated_environment(request)
    services.archive_named_environment(named=named)
    return _fresh(named)


@router.post(f"{_ENVIRONMENT}/restore", auth=gate(_CHANGE), response=NamedEnvironmentOut)
def restore_named_environment(
    request: HttpRequest, project: str, environment: str
) -> NamedEnvironmentOut:
    """Restore an archived environment."""
    named = gated_environment(request)
    services.restore_named_environment(named=named)
    return _fresh(named)


@router.get(
    _DEFAULT,
    auth=gate(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=DefaultEnvironmentOut,
)
def get_default_environment(request: HttpRequest, project: str) -> DefaultEnvironmentOut:
    """Get the default environment of a project."""
    default = services.default_of(gated_project(request))
    return DefaultEnvironmentOut(environment=default and default.name)


@router.put(
    _DEFAULT,
    auth=gate(ProjectRole(Role.MAINTAINER, Scope.WORKLOADS_WRITE)),
    response=DefaultEnvironmentOut,
)
def set_default_environment(
    request: HttpRequest, project: str, payload: DefaultEnvironmentIn
) -> DefaultEnvironmentOut:
    """Set the environment of jobs and notebook servers that name no packages, null for none."""
    default = services.set_default_environment(
        project=gated_project(request), name=payload.environment
    )
    return DefaultEnvironmentOut(environment=default and default.name)
