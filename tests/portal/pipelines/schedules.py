"""Schedules, and times at which they are advanced, for tests."""

from datetime import UTC, datetime
from typing import Any

from portal.core import clock
from portal.pipelines.services.progress import advance_all
from tests.personas import Api, json_of
from tests.portal.training.jobs import made_job

SCHEDULES = "projects/vision/schedules"
NIGHTLY = f"{SCHEDULES}/nightly"
# Before 02:00 of a Thursday.
EVENING = datetime(2026, 12, 9, 20, tzinfo=UTC)


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """Return a time in December 2026."""
    return datetime(2026, 12, day, hour, minute, tzinfo=UTC)


def body_of(job: str, **changes: Any) -> dict[str, Any]:
    """Return a schedule that repeats a job at 02:00 UTC, with changes."""
    return {"name": "nightly", "cron": "0 2 * * *", "job": job} | changes


def create_nightly(api: Api, **changes: Any) -> str:
    """Submit a job, cancel it, and schedule it in the evening. Returns the job's id."""
    with clock.frozen(EVENING):
        job: str = made_job(api, params={"epochs": "3"})["workload"]["id"]
        end_job(api, job)
        answer = api.post(SCHEDULES, body_of(job, **changes))
    assert answer.status_code == 201, answer.content
    return job


def end_job(api: Api, job: str) -> None:
    """Cancel a job that waits, which ends it."""
    assert json_of(api.post(f"projects/vision/jobs/{job}/cancel"))["workload"]["state"] == "stopped"


def advance(now: datetime) -> None:
    """Let control do at a time what is due then."""
    with clock.frozen(now):
        advance_all()


def nightly(api: Api) -> dict[str, Any]:
    """Return the schedule as the API shows it."""
    schedule: dict[str, Any] = json_of(api.get(NIGHTLY))
    return schedule


def runs_of(api: Api) -> list[dict[str, Any]]:
    """Return the runs, the earliest first."""
    page = json_of(api.get(f"{NIGHTLY}/runs?limit=200"))
    return list(reversed(page["items"]))


def states_of(api: Api) -> list[str]:
    """Return the states of the runs, the earliest first."""
    return [run["state"] for run in runs_of(api)]
