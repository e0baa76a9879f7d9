"""Named environments of a project: the list, and one with its builds and users."""

from typing import Any

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import Project
from portal.compute.gates import EnvironmentRole, gated_environment
from portal.compute.lifecycle import BuildState
from portal.compute.models import (
    EnvironmentBuild,
    EnvironmentVersion,
    NamedEnvironment,
)
from portal.compute.services.named_environments import (
    build_summaries,
    default_of,
    latest_versions,
    version_of,
)
from portal.compute.services.version_packages import channels_of, document_of, frozen
from portal.compute.services.vulnerabilities import audit_of
from portal.core.policy import guarded_by
from portal.endpoints.lifecycle import KEPT
from portal.endpoints.models import Revision
from portal.notebooks.models import Server
from portal.training.models import Job
from portal.web.base.environments import BUILD_LABELS, BUILD_TONES
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.workloads.environment_builds import tail_of_build
from portal.web.workloads.logs import number
from portal.workloads.builds_ahead import requested_nodes
from slipway.schemas.accounts import Role, Scope

WHERE = {"area": "projects", "section": "environments"}
_VERSIONS, _BUILDS = 20, 20
_JOBS, _SERVERS, _REVISIONS = 10, 10, 10


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_environments(request: HttpRequest, project: str) -> HttpResponse:
    """List the environments, newest first."""
    project_row, role = gated_project(request), gated_role(request)
    is_archived = request.GET.get("show") == "archived"
    environments = NamedEnvironment.objects.of_project(project_row)
    environments = environments.matching(search_parameter(request, "q"))
    shown = listing(
        request,
        environments.filter(archived_at__isnull=not is_archived),
        sorts={"name": "name"},
        selects=(Select("show", "Show", [("archived", "Archived")], default="In use"),),
    )
    context = {
        "listing": shown,
        "region": "environments",
        "rows": _rows(project_row, list(shown.page.items)),
        "default": default_of(project_row),
        "may_write": role.at_least(Role.CONTRIBUTOR),
        "may_set_default": role.at_least(Role.MAINTAINER),
    }
    return render(request, "web/environments/list.html", context | WHERE)


def _rows(project: Project, environments: list[NamedEnvironment]) -> list[dict[str, Any]]:
    versions = latest_versions(environments)
    summaries = build_summaries(project, [it.environment_id for it in versions.values()])
    jobs = Job.objects.filter(environment_version__named__in=environments)
    counts = dict(jobs.values_list("environment_version__named").annotate(Count("pk")).order_by())
    rows = []
    for named in environments:
        version = versions[named.pk]
        summary = summaries[version.environment_id]
        rows.append(
            {
                "named": named,
                "version": version,
                "build": BUILD_LABELS[summary],
                "tone": BUILD_TONES[summary],
                "jobs": counts.get(named.pk, 0),
            }
        )
    return rows


@guarded_by(EnvironmentRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_environment(request: HttpRequest, project: str, environment: str) -> HttpResponse:
    """Show a version of an environment, by default the latest: packages, builds, users."""
    named, role = gated_environment(request), gated_role(request)
    version = version_of(named, number(request, "version", named.version))
    versions = EnvironmentVersion.objects.filter(named=named).select_related("created_by")
    jobs = Job.objects.filter(environment_version__named=named)
    servers = Server.objects.filter(environment_version__named=named)
    revisions = Revision.objects.filter(
        environment_version__named=named, state__in=[state.value for state in KEPT]
    )
    builds = EnvironmentBuild.objects.filter(
        environment=version.environment, project=named.project
    ).select_related("node")
    shown_builds = shortlist(builds.order_by("node__name"), _BUILDS)
    packages = version.environment
    requested = requested_nodes(project=named.project, environment=packages)
    context = {
        "named": named,
        "version": version,
        "is_latest": version.number == named.version,
        "document": document_of(packages),
        "channels": channels_of(packages),
        "locked": frozen(packages) if shown_builds else "",
        "builds": shown_builds.replaced_by(
            (build, tail_of_build(packages.digest, build)) for build in shown_builds
        ),
        "audit": audit_of(packages, is_built=bool(shown_builds)),
        "requested": requested,
        "is_built": any(build.state == BuildState.READY for build in shown_builds),
        "is_building": any(build.state == BuildState.BUILDING for build in shown_builds),
        "versions": shortlist(versions.order_by("-number"), _VERSIONS),
        "jobs": shortlist(
            jobs.select_related(
                "workload__submitted_by", "workload__project", "environment_version"
            ).order_by("-pk"),
            _JOBS,
        ),
        "servers": shortlist(
            servers.select_related("owner", "environment_version").order_by("-pk"), _SERVERS
        ),
        "revisions": shortlist(
            revisions.select_related("endpoint", "made_by", "environment_version")
            .defer("served", "counts")
            .order_by("-pk"),
            _REVISIONS,
        ),
        "may_write": role.at_least(Role.CONTRIBUTOR),
        "may_set_default": role.at_least(Role.MAINTAINER),
    }
    return render(request, "web/environments/environment.html", context | WHERE)
