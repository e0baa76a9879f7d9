"""Jobs of a project: the list, one job, its end."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.compute.models import Environment, Tier
from portal.core.policy import guarded_by
from portal.datasets.services.uses import read_by
from portal.experiments.ports import RunDetail
from portal.experiments.services.job_runs import run_of
from portal.notebooks.models import NotebookRun
from portal.pipelines.pipeline_summaries import step_of_job
from portal.pipelines.summaries import run_of_job
from portal.training.job_specs import PYTHON
from portal.training.kept_files import rule_text
from portal.training.models import Checkpoint, Job
from portal.training.services.jobs import cancel_job, resume_job
from portal.training.services.reports import files_of
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.base.urls_for import address_of
from portal.web.experiments.presenters.curves import Curves, curves_of
from portal.web.jobs.presenters import GROUPS, JobStatus, job_of, job_status, job_statuses, jobs_of
from portal.web.jobs.views.dashboards import dashboard_label
from portal.web.jobs.views.shells import refusal_of_shell
from portal.web.workloads.logs import tail_of
from portal.web.workloads.presenters import workload_page
from portal.workloads.services.resume import is_resumable
from portal.workloads.specs import RunSpec
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.backends import DEFAULT_BACKEND, label_of
from slipway.schemas.frameworks import framework_label

SORTS = {"name": "workload__name", "tier": "workload__tier__slug"}
READ_SHOWN = 200
CHECKPOINTS = 20
CLONES = 10
_MOST_CHARTS = 12
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "jobs"}


@guarded_by(_SEE)
@require_safe
def project_jobs(request: HttpRequest, project: str) -> HttpResponse:
    """List the jobs, newest first unless asked otherwise."""
    project_row, viewer = gated_project(request), require_principal(request).user
    jobs = jobs_of(project_row).matching(
        text=search_parameter(request, "q"), tier=search_parameter(request, "tier")
    )
    if request.GET.get("who") == "me":
        jobs = jobs.filter(workload__submitted_by=viewer)
    if request.GET.get("state") in GROUPS:
        jobs = jobs.filter(workload__state__in=GROUPS[request.GET["state"]][1])
    slugs = Tier.objects.order_by("slug").values_list("slug", flat=True)
    selects = (
        Select("state", "State", [(key, label) for key, (label, _) in GROUPS.items()]),
        Select("who", "Submitted by", [("me", "Me")], default="Everybody"),
        Select("tier", "Tier", [(slug, slug) for slug in slugs]),
    )
    shown = listing(request, jobs, sorts=SORTS, selects=selects)
    rows = job_statuses(shown.page.items, viewer, explains_first=True)
    context = {
        "listing": shown,
        "region": "jobs",
        "rows": rows,
        "any_active": any(not row.has_ended for row in rows),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/jobs/list.html", context | _WHERE)


@guarded_by(_SEE)
@require_safe
def project_job(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Show one job: status and reason, log, resource usage, and what was submitted."""
    project_row, viewer = gated_project(request), require_principal(request).user
    status = job_status(job_of(project_row, job), viewer)
    may_run = gated_role(request).at_least(Role.CONTRIBUTOR)
    has_shell = may_run and refusal_of_shell(status.workload, viewer) is None
    context = page_of(status, viewer) | {
        "may_run": may_run,
        "has_shell": has_shell,
        "dashboard": dashboard_label(status.workload, viewer) if may_run else "",
    }
    if request.headers.get("HX-Request") != "true":  # a refresh of the state contains no log
        context |= tail_of(status.workload, request)
        run = run_of(status.workload)
        context |= {
            "run": run,
            "notebook_run": NotebookRun.objects.of_project(project_row).filter(pk=job).first(),
            "curves": _curves_of(project, run) if run else None,
        }
    return render(request, "web/jobs/job.html", context | _WHERE)


def _curves_of(project_slug: str, run: RunDetail) -> Curves:
    return curves_of(
        project_slug,
        [run.facts],
        [it.key for it in run.metrics],
        charts=_MOST_CHARTS,
        live=run.facts.status == "RUNNING",
    )


def page_of(status: JobStatus, viewer: User) -> dict[str, Any]:
    """Collect what the page of a job shows beside its log."""
    job, workload = status.job, status.workload
    spec = RunSpec.model_validate(workload.spec)
    return workload_page(status, viewer) | {
        "job": job,
        "backend": "" if workload.backend == DEFAULT_BACKEND else label_of(workload.backend),
        "events_command": f"slipway job events {workload.pk} --project {workload.project.slug}",
        "environment": Environment.objects.filter(digest=workload.environment).first(),
        "checkpoints": shortlist(Checkpoint.objects.filter(job=job).order_by("-step"), CHECKPOINTS),
        "files": files_of(job),
        "framework": framework_label(spec.framework),
        "is_batch_prediction": spec.argv[0] != PYTHON,
        "files_rule": rule_text(spec.keep, spec.keep_limit_bytes),
        "is_resumable": is_resumable(workload),
        "read": shortlist(read_by(workload=workload), READ_SHOWN),
        "scheduled_run": run_of_job(job.pk),
        "step_run": step_of_job(job.pk),
        "clones": shortlist(Job.objects.filter(cloned_from=job).select_related("workload"), CLONES),
    }


@guarded_by(_SEE)
@require_safe
def project_job_diff(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Show what was not committed when the code was taken."""
    job_row = job_of(gated_project(request), job)
    lines = str((job_row.git or {}).get("diff", "")).splitlines()
    context = {
        "job": job_row,
        "workload": job_row.workload,
        "lines": [(_kind(x), x) for x in lines],
    }
    return render(request, "web/jobs/diff.html", context | _WHERE)


def _kind(line: str) -> str:
    if line.startswith(("diff ", "+++", "---", "index ")):
        return "file"
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")


@guarded_by(_RUN)
@require_POST
def project_job_resume(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Carry on a job that a budget has stopped, from its checkpoint."""
    project_row, by = gated_project(request), require_principal(request).user
    job_row = job_of(project_row, job)
    if one_click(request, lambda: resume_job(job=job_row, by=by)):
        messages.success(request, f"{job_row.workload.name} is resuming from its checkpoint.")
    return redirect(address_of(project_row, "job", job))


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_job_cancel(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Ask, then end a job."""
    project_row, by = gated_project(request), require_principal(request).user
    job_row = job_of(project_row, job)
    if request.method == "POST":
        if one_click(request, lambda: cancel_job(job=job_row, by=by)):
            is_kept = job_row.workload.is_kept
            stopping = "The failed task of {} ends." if is_kept else "{} is stopping."
            messages.success(request, stopping.format(job_row.workload.name))
        return redirect(address_of(project_row, "job", job))
    return show_confirmation(
        request, _cancel_confirmation(job_status(job_row, by), address_of(project_row, "job", job))
    )


def _cancel_confirmation(status: JobStatus, back: str) -> Confirmation:
    name = status.workload.name
    if status.workload.is_kept:
        return Confirmation(
            title=f"End the failed task of {name}?",
            effects=(
                "Its processes, the shells in it and its files end now, and with them its cost.",
                "The log, checkpoints and files that were kept as artifacts are retained.",
            ),
            button="End now",
            back=back,
            area="projects",
            section="jobs",
        )
    effects = [f"{name} leaves the queue; nothing has run yet."]
    if status.is_active:
        ranks = status.workload.nodes * status.workload.procs
        requested = "Its only rank is" if ranks == 1 else f"All {ranks} ranks are"
        effects = [
            f"{requested} asked to stop, and killed after 30 seconds.",
            (
                "Steps since the last checkpoint are lost; the log, checkpoints and costs are "
                "retained."
            ),
        ]
    if status.has_ended:
        effects = [f"{name} has already ended, so this has no effect."]
    return Confirmation(
        title=f"Cancel {name}?",
        effects=(*effects, "To run it again, use Clone."),
        button="Cancel the job",
        back=back,
        area="projects",
        section="jobs",
    )
