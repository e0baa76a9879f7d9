"""Presentation of jobs among workloads."""

from portal.workloads.presentation import PageAddress, Presentation


def _page_of(workload_id: str) -> PageAddress:
    return PageAddress("project_job", (workload_id,))


PRESENTATION = Presentation(
    icon="rocket",
    page_of=_page_of,
    resume_page="project_job_resume",
    search_noun="jobs",
)
