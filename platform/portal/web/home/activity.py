"""Running workloads and serving endpoints of some projects, for Home and the project overview."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Count, QuerySet

from portal.accounts.models import Project, User
from portal.endpoints.models import Endpoint
from portal.endpoints.services.queries import Summary, summaries_of
from portal.endpoints.services.traffic import requests_per_minute
from portal.training.models import JobQuerySet
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.endpoints.presenters import endpoint_rows
from portal.web.jobs.presenters import JobStatus, job_statuses
from portal.workloads.models import Lease, Workload
from slipway.schemas.money import charged

_SHOWN = 8
_MINUTES_DRAWN = 60


def activity_of(user: User, jobs: JobQuerySet, projects: QuerySet[Project]) -> dict[str, Any]:
    """Return jobs, endpoints with their traffic, and what an hour of all costs, in nano-USD."""
    standings = _standings(user, jobs)
    endpoints = Endpoint.objects.of_projects(projects).order_by("-pk")
    shown = shortlist(endpoints, _SHOWN)
    held = Lease.objects.open().filter(project__in=projects)
    return {
        "jobs": standings,
        "any_active": any(not job.has_ended for job in standings),
        "endpoints": shown.replaced_by(endpoint_rows(_summaries(shown))),
        "burn_rate": sum(
            count * charged(price, percent=percent, discount=discount)
            for price, percent, discount, count in held.order_by()
            .values_list("nano_usd_per_hour", "price_percent", "discount_percent")
            .annotate(Count("pk"))
        ),
    }


def _summaries(endpoints: Sequence[Endpoint]) -> list[Summary]:
    requests = requests_per_minute([it.pk for it in endpoints], minutes=_MINUTES_DRAWN)
    return [
        replace(summary, requests_per_minute=requests[summary.endpoint.pk])
        for summary in summaries_of(endpoints)
    ]


def _standings(user: User, jobs_row: JobQuerySet) -> Shortlist[JobStatus]:
    """Return running and waiting jobs, then the latest ended ones, which are not counted."""
    unfinished = jobs_row.filter(workload__in=Workload.objects.unfinished()).order_by("-pk")
    jobs = shortlist(unfinished, _SHOWN)
    if len(jobs) < _SHOWN:
        over = jobs_row.exclude(workload__in=Workload.objects.unfinished()).order_by("-pk")
        jobs += over[: _SHOWN - len(jobs)]
    return jobs.replaced_by(job_statuses(jobs, user))
