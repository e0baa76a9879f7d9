"""Presenters of notebook files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput
from portal.notebooks.models import NotebookFile, NotebookRun, NotebookVersion
from portal.notebooks.services.files import version_of
from portal.notebooks.services.files_runs import Reproducibility as Reproducible
from portal.notebooks.services.files_runs import reproducibility_of as reproducible
from portal.web.base.list_query import search_parameter
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.jobs.presenters import JobStatus, job_statuses, jobs_of

RUNS_SHOWN = 10
_LONGEST_NUMBER = 9
BADGES = {
    "verified": ("Reproducible", "ok"),
    "failed": ("Not reproducible", "bad"),
    "changed": ("Changed since verified", "warn"),
    "unverified": ("Not verified", ""),
    "checking": ("Verifying", ""),
}


@dataclass(frozen=True)
class NotebookFileView:
    """A notebook with its badge."""

    file: NotebookFile
    latest: NotebookVersion
    badge: Reproducible
    badge_label: str
    tone: str


@dataclass(frozen=True)
class NotebookRunView:
    """A verification or a run: the status of its job and its findings."""

    run: NotebookRun
    status: JobStatus
    findings: Sequence[dict[str, Any]]

    @property
    def progress(self) -> str:
        """At which cell it is."""
        if self.status.has_ended or not self.status.step or self.run.version is None:
            return ""
        return f"cell {self.status.step} of {self.run.version.cells}"


def notebook_view(file: NotebookFile, latest: NotebookVersion | None = None) -> NotebookFileView:
    """Describe a notebook of `NotebookFileQuerySet.of_project`."""
    badge = reproducible(file)
    label, tone = BADGES[badge.badge]
    return NotebookFileView(file, latest or version_of(file, None), badge, label, tone)


def run_views(project: Project, runs: Sequence[NotebookRun], viewer: User) -> list[NotebookRunView]:
    """Return the status of the jobs of some runs, with a fixed number of queries."""
    jobs = jobs_of(project).filter(workload_id__in=[run.pk for run in runs])
    known = {it.workload.pk: it for it in job_statuses(list(jobs), viewer)}
    return [
        NotebookRunView(run, known[run.pk], (run.report or {}).get("findings", ()))
        for run in runs
        if run.pk in known
    ]


def recent_runs(file: NotebookFile, viewer: User) -> Shortlist[NotebookRunView]:
    """Return the newest verifications and runs of a notebook."""
    notebook_runs = NotebookRun.objects.of_project(file.project).filter(version__file=file)
    runs = shortlist(notebook_runs.order_by("-pk"), RUNS_SHOWN)
    return runs.replaced_by(run_views(file.project, runs, viewer))


def requested_version(request: HttpRequest, file: NotebookFile, name: str) -> NotebookVersion:
    """Return the requested version, by default the newest, or raise InvalidInput."""
    return numbered_version(file, search_parameter(request, name))


def numbered_version(file: NotebookFile, text: str) -> NotebookVersion:
    """Return a version by its number as text, the newest if it is empty, or raise InvalidInput."""
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise InvalidInput(
            f"“{text[:20]}” is not the number of a version.",
            field="version",
            next_step=f"The versions are 1 to {file.head}.",
        )
    return version_of(file, int(text) if text else None)
