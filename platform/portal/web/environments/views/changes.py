"""Changes of named environments: create, version, describe, archive, default."""

import re
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.compute.gates import EnvironmentRole, gated_environment
from portal.compute.models import Environment, NamedEnvironment
from portal.compute.services.named_environments import (
    add_version,
    archive_named_environment,
    create_named_environment,
    describe_named_environment,
    restore_named_environment,
    set_default_environment,
    version_of,
)
from portal.compute.services.version_packages import VersionPackages, document_of
from portal.core.policy import guarded_by
from portal.training.services.named_packages import named_packages
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.environments.forms import (
    EnvironmentDescriptionForm,
    EnvironmentVersionForm,
    NewEnvironmentForm,
)
from portal.web.environments.views.pages import WHERE
from portal.workloads.builds_ahead import request_builds
from slipway.schemas.accounts import Role, Scope

_CREATE = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_CHANGE = EnvironmentRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


def _packages(
    project: Project, data: dict[str, Any], latest: Environment | None = None
) -> VersionPackages:
    return named_packages(
        project=project, requirements=data["requirements"], python=data["python"], latest=latest
    )


@guarded_by(_CREATE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_environment_new(request: HttpRequest, project: str) -> HttpResponse:
    """Create an environment with its first version."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewEnvironmentForm(sent(request), request.FILES or None)

    def create(data: dict[str, Any]) -> NamedEnvironment:
        return create_named_environment(
            project=project_row,
            by=by,
            name=data["name"],
            description=data["description"],
            packages=_packages(project_row, data),
        )

    done = submit_form(request, form, create)
    if done:
        messages.success(request, f"Environment {done.result.name} created.")
        return redirect("project_environment", project_row.slug, done.result.name)
    return render(
        request, "web/environments/new.html", {"form": form} | WHERE, status=status_of(form)
    )


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_environment_version(
    request: HttpRequest, project: str, environment: str
) -> HttpResponse:
    """Add a version. The form starts with the packages of the latest one."""
    named, by = gated_environment(request), require_principal(request).user
    latest = version_of(named, named.version)
    initial = {"requirements": document_of(latest.environment)}
    if not latest.is_conda:
        initial["python"] = latest.environment.python
    form = EnvironmentVersionForm(sent(request), request.FILES or None, initial=initial)
    done = submit_form(
        request,
        form,
        lambda data: add_version(
            named=named, by=by, packages=_packages(named.project, data, latest.environment)
        ),
    )
    if done:
        messages.success(request, f"Version {done.result.number} of {named.name} created.")
        return redirect("project_environment", named.project.slug, named.name)
    context = {"form": form, "named": named}
    return render(request, "web/environments/version.html", context | WHERE, status=status_of(form))


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_environment_edit(request: HttpRequest, project: str, environment: str) -> HttpResponse:
    """Change the description."""
    named = gated_environment(request)
    form = EnvironmentDescriptionForm(sent(request), initial={"description": named.description})
    done = submit_form(
        request,
        form,
        lambda data: describe_named_environment(named=named, description=data["description"]),
    )
    if done:
        messages.success(request, f"Description of {named.name} saved.")
        return redirect("project_environment", named.project.slug, named.name)
    context = {"form": form, "named": named}
    return render(request, "web/environments/edit.html", context | WHERE, status=status_of(form))


@guarded_by(_CHANGE)
@require_POST
def project_environment_build(request: HttpRequest, project: str, environment: str) -> HttpResponse:
    """Request a build of a version from the nodes, before a job needs it."""
    named, by = gated_environment(request), require_principal(request).user
    text = request.POST.get("number", "")
    number = int(text) if re.fullmatch("[1-9][0-9]{0,8}", text) else named.version
    version = version_of(named, number)
    done = one_click(request, lambda: request_builds(version=version, by=by))
    if done:
        nodes = ", ".join(node.name for node in done.result)
        messages.success(request, f"Building {version.reference} on {nodes}.")
    page = reverse("project_environment", args=[named.project.slug, named.name])
    return redirect(f"{page}?version={number}")


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_environment_archive(
    request: HttpRequest, project: str, environment: str
) -> HttpResponse:
    """Ask, then archive an environment."""
    named = gated_environment(request)
    page = reverse("project_environment", args=[named.project.slug, named.name])
    if request.method == "POST":
        if one_click(request, lambda: archive_named_environment(named=named)):
            messages.success(request, f"Environment {named.name} archived.")
        return redirect(page)
    question = Confirmation(
        title=f"Archive the environment {named.name}?",
        effects=(
            "New jobs, notebook servers and revisions of endpoints cannot use it.",
            "What ran in it, and notebook servers and endpoints that use it, stay as they are.",
            "You can restore it at any time.",
        ),
        button="Archive the environment",
        back=page,
        area="projects",
        section="environments",
    )
    return show_confirmation(request, question)


@guarded_by(_CHANGE)
@require_POST
def project_environment_restore(
    request: HttpRequest, project: str, environment: str
) -> HttpResponse:
    """Restore an archived environment."""
    named = gated_environment(request)
    if one_click(request, lambda: restore_named_environment(named=named)):
        messages.success(request, f"Environment {named.name} restored.")
    return redirect("project_environment", named.project.slug, named.name)


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.WORKLOADS_WRITE))
@require_POST
def project_environment_default(request: HttpRequest, project: str) -> HttpResponse:
    """Set the default environment of the project. No name stands for that of the installation."""
    project_row = gated_project(request)
    name = request.POST.get("environment", "")[:60] or None
    done = one_click(request, lambda: set_default_environment(project=project_row, name=name))
    if done:
        default = done.result.name if done.result else "that of the installation"
        messages.success(request, f"The default environment is {default} now.")
    return redirect("project_environments", project_row.slug)
