"""Changes of reports: create, edit with preview, restore, delete."""

from typing import Any

import orjson
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.experiments.factories import tracker
from portal.reports.content.reader import ReportReader
from portal.reports.gates import ReportRole, gated_report
from portal.reports.models import Report
from portal.reports.services.reports import (
    create_report,
    delete_report,
    restore_version,
    save_report,
    version_of,
)
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.reports.forms import ReportForm, is_run_id
from portal.web.reports.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope

CHANGE = ReportRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
CREATE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_MOST_DIGITS = 9
_MOST_LABELLED = 200


@guarded_by(CREATE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_report_new(request: HttpRequest, project: str) -> HttpResponse:
    """Create a report."""
    project_row, by = gated_project(request), require_principal(request).user
    form = ReportForm(sent(request), initial={"blocks": "[]"})
    if "preview" not in request.POST:
        done = submit_form(
            request, form, lambda _: create_report(project=project_row, by=by, spec=form.spec)
        )
        if done:
            messages.success(request, f"Report {done.result.title} created.")
            return redirect("project_report", project_row.slug, done.result.pk)
    return _editor(request, project_row, form, report=None)


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_report_edit(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Edit a report. Content that was edited from an older version is kept, and not saved."""
    report_row, by = gated_report(request), require_principal(request).user
    current = version_of(report_row, report_row.version)
    blocks = orjson.dumps(current.blocks, option=orjson.OPT_INDENT_2).decode()
    initial = {"title": current.title, "blocks": blocks, "version": current.number}
    form = ReportForm(sent(request), initial=initial)
    if "preview" not in request.POST:
        done = submit_form(
            request,
            form,
            lambda data: save_report(
                report=report_row, by=by, spec=form.spec, version=data["version"] or 0
            ),
        )
        if done:
            messages.success(request, f"Saved as version {done.result.version}.")
            return redirect("project_report", report_row.project.slug, report_row.pk)
    return _editor(request, gated_project(request), form, report=report_row)


def _editor(
    request: HttpRequest, project: Project, form: ReportForm, *, report: Report | None
) -> HttpResponse:
    is_preview = "preview" in request.POST
    preview = None
    if is_preview and form.is_valid():
        stored = [block.model_dump(mode="json") for block in form.spec.blocks]
        preview = ReportReader(project, links=True).read(stored)
    changed = (
        report is not None
        and form.is_bound
        and not is_preview
        and form.data.get("version") != str(report.version)
    )
    context = {
        "form": form,
        "report": report,
        "changed": changed,
        "preview": preview,
        "labels": _run_names(project, str(form["blocks"].value() or "")),
    }
    return render(request, "web/reports/edit.html", context | WHERE, status=status_of(form))


def _run_names(project: Project, text: str) -> dict[str, str]:
    """Return the names of the runs in blocks, by their id."""
    try:
        blocks = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return {}
    ids: list[Any] = []
    for block in blocks if isinstance(blocks, list) else []:
        if isinstance(block, dict):
            runs = block.get("runs")
            ids += [block.get("run"), *(runs if isinstance(runs, list) else [])]
    known = list(dict.fromkeys(it for it in ids if isinstance(it, str) and is_run_id(it)))
    runs = tracker().runs(project.pk, known[:_MOST_LABELLED])
    return {run.id: run.name or run.id for run in runs}


@guarded_by(CHANGE)
@require_POST
def project_report_restore(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Save the content of an earlier version as the newest one."""
    report_row, by = gated_report(request), require_principal(request).user
    done = one_click(
        request,
        lambda: restore_version(
            report=report_row,
            by=by,
            number=_number(request, "number"),
            version=_number(request, "version"),
        ),
    )
    if done:
        messages.success(request, f"Restored as version {done.result.version}.")
    return redirect("project_report", report_row.project.slug, report_row.pk)


def _number(request: HttpRequest, field: str) -> int:
    text = request.POST.get(field, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidInput(
            f"The {field} is not a version of this report.",
            field=field,
            next_step="Choose a version in the list.",
        )
    return int(text)


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_report_delete(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Ask, then delete a report."""
    report_row = gated_report(request)
    slug = report_row.project.slug
    if request.method == "POST":
        if one_click(request, lambda: delete_report(report=report_row)):
            messages.success(request, f"Report {report_row.title} deleted.")
        return redirect("project_reports", slug)
    effects = [f"All {report_row.version} versions are deleted. You cannot undo this."]
    if report_row.version == 1:
        effects = ["You cannot undo this."]
    if report_row.share_hash:
        effects.append("Its share link stops working.")
    question = Confirmation(
        title=f"Delete the report {report_row.title}?",
        effects=(*effects, "Runs, models and other objects in it stay."),
        button="Delete the report",
        back=reverse("project_report", args=[slug, report_row.pk]),
        area="projects",
        section="reports",
    )
    return show_confirmation(request, question)
