"""Presentation of jobs among workloads."""

from collections.abc import Sequence

from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.training.models import Job
from portal.workloads.presentation import PageAddress, Presentation, SearchHit


def _page_of(workload_id: str) -> PageAddress:
    return PageAddress("project_job", (workload_id,))


def _search(
    *, principal: Principal, project: Project | None, text: str, limit: int
) -> Sequence[SearchHit]:
    jobs = Job.objects.filter(workload__project__in=principal.projects().live())
    jobs = jobs.filter(workload__name__icontains=text).select_related("workload__project")
    if project is not None:
        jobs = jobs.filter(workload__project=project)
    return [
        SearchHit(job.workload.name, "job", job.workload.project, _page_of(job.workload_id))
        for job in jobs.order_by("-pk")[:limit]
    ]


PRESENTATION = Presentation(
    icon="rocket",
    page_of=_page_of,
    resume_page="project_job_resume",
    search_noun="jobs",
    search=_search,
)
