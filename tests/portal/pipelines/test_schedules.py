"""Schedules through the REST API: created, changed, paused, resumed, run and deleted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from portal.accounts.models import AuditEvent, Membership, User
from portal.core import clock
from portal.pipelines.models import ProjectSchedule
from portal.training.models import Job
from slipway.schemas.accounts import Role
from slipway.schemas.schedules import MOST_SCHEDULES
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.schedules import (
    EVENING,
    NIGHTLY,
    SCHEDULES,
    advance,
    at,
    body_of,
    create_nightly,
    end_job,
    nightly,
    runs_of,
    states_of,
)
from tests.portal.sweeps.trials import start_sweep
from tests.portal.training.jobs import made_job
from tests.portal.workloads.machines import Machine


@pytest.mark.postgres
def test_a_schedule_repeats_a_job_exactly(bob: Api, machine: Machine) -> None:
    template = create_nightly(bob, zone="Europe/Berlin")
    schedule = nightly(bob)
    assert (schedule["state"], schedule["owner"]) == ("active", "bob@example.org")
    assert (schedule["job"], schedule["script"], schedule["tier"]) == (
        template,
        "train.py",
        "small",
    )
    advance(at(10, 0, 59))
    assert runs_of(bob) == []
    advance(at(10, 1, 0))  # 02:00 in Berlin
    (run,) = runs_of(bob)
    assert (run["state"], run["due_at"], run["outcome"]) == (
        "started",
        "2026-12-10T01:00:00+00:00",
        "queued",
    )
    first = json_of(bob.get(f"projects/vision/jobs/{template}"))
    again = json_of(bob.get(f"projects/vision/jobs/{run['job']}"))
    same = ("script", "params", "args", "snapshot", "environment", "datasets")
    assert {key: again[key] for key in same} == {key: first[key] for key in same}
    assert again["params"] == {"epochs": "3"}
    assert again["workload"]["submitted_by"] == first["workload"]["submitted_by"]
    advance(at(10, 1, 1))
    assert len(runs_of(bob)) == 1
    assert nightly(bob)["next_at"] == "2026-12-11T01:00:00+00:00"
    event = AuditEvent.objects.filter(verb="workload.submit").first()
    assert event is not None
    assert event.actor == "Schedule nightly"


def test_a_schedule_repeats_a_sweep(bob: Api, machine: Machine) -> None:
    template = start_sweep(bob, trials=3, algorithm="random", seed=5)
    bob.post(f"projects/vision/sweeps/{template}/stop")
    with clock.frozen(EVENING):
        made = bob.post(SCHEDULES, body_of("") | {"job": None, "sweep": template})
    assert made.status_code == 201, made.content
    advance(at(10, 2))
    (run,) = runs_of(bob)
    sweep = json_of(bob.get(f"projects/vision/sweeps/{run['sweep']}"))
    assert (sweep["name"], sweep["trials"], sweep["seed"]) == ("digits", 3, 5)
    assert run["outcome"] == "running"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"cron": "0 2 * *"}, "cron", "has 4 fields, not 5"),
        ({"cron": "0 0 2 * * *"}, "cron", "has 6 fields, not 5"),
        ({"cron": "61 2 * * *"}, "cron", "61 is no minute."),
        ({"cron": "0 2 * * MUN"}, "cron", "MUN is no day of the week."),
        ({"cron": "0 2 31 2 *"}, "cron", "it would never fire"),
        ({"cron": "0 2 30 2 *"}, "cron", "it would never fire"),
        ({"cron": ""}, "cron", ""),
        ({"zone": "Europe/Atlantis"}, "zone", "There is no time zone Europe/Atlantis."),
        ({"zone": "../../etc/passwd"}, "zone", "There is no time zone"),
        ({"name": "Every night"}, "name", ""),
        ({"name": "preview"}, "name", "cannot be named preview"),
        ({"job": "wl_none"}, "job", "There is no job wl_none in project vision."),
        ({"job": None}, "", "name one of job, sweep"),
        ({"sweep": "swp_none"}, "", "name one of job, sweep"),
        ({"missed": "all", "overlap": "cancel"}, "missed", "cannot all be made up for"),
        ({"missed": "twice"}, "missed", ""),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    bob: Api, machine: Machine, changes: dict[str, Any], field: str, words: str
) -> None:
    job = made_job(bob)["workload"]["id"]
    answer = bob.post(SCHEDULES, body_of(job) | changes)
    assert answer.status_code == 422, answer.content
    problem = json_of(answer)
    named = [problem.get("field"), *(error["field"] for error in problem.get("errors", []))]
    assert any(field in (name or "") for name in named), problem
    assert words in str(problem)
    assert not ProjectSchedule.objects.exists()


@pytest.mark.postgres
def test_a_name_is_free_again_once_its_schedule_is_deleted(bob: Api, machine: Machine) -> None:
    job = create_nightly(bob)
    again = bob.post(SCHEDULES, body_of(job))
    assert (again.status_code, json_of(again)["code"]) == (409, "name_taken")
    assert bob.delete(NIGHTLY).status_code == 204
    assert bob.get(NIGHTLY).status_code == 404
    with clock.frozen(EVENING):
        assert bob.post(SCHEDULES, body_of(job)).status_code == 201
    advance(at(10, 2))
    assert Job.objects.count() == 2  # only of the new one


def test_a_project_has_a_bounded_number_of_schedules(bob: Api, machine: Machine) -> None:
    create_nightly(bob)
    (schedule,) = ProjectSchedule.objects.all()
    fields = ("project", "owner", "cron", "zone", "job", "request", "missed", "overlap", "next_at")
    values = {name: getattr(schedule, name) for name in fields}
    ProjectSchedule.objects.bulk_create(
        ProjectSchedule(name=f"s{number}", **values) for number in range(MOST_SCHEDULES - 1)
    )
    answer = bob.post(SCHEDULES, body_of(schedule.job_id or "", name="more"))
    assert (answer.status_code, json_of(answer)["code"]) == (409, "too_many_schedules")


@pytest.mark.parametrize(
    ("cron", "now", "times"),
    [
        # The hour from 2 to 3 does not exist: once, right after it.
        (
            "30 2 * * *",
            datetime(2026, 3, 28, 12, tzinfo=UTC),
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        # The hour from 2 to 3 is there twice: the first time only.
        (
            "30 2 * * *",
            datetime(2026, 10, 24, 12, tzinfo=UTC),
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        # Between the two, the first one has passed.
        (
            "45 2 * * *",
            datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
            ["2026-10-26T02:45:00+01:00", "2026-10-27T02:45:00+01:00"],
        ),
        # Every hour follows the time that passes.
        (
            "0 * * * *",
            datetime(2026, 10, 24, 23, 30, tzinfo=UTC),
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"],
        ),
        (
            "0 * * * *",
            datetime(2026, 3, 28, 23, 30, tzinfo=UTC),
            ["2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"],
        ),
    ],
)
def test_next_times_where_clocks_change(
    bob: Api, cron: str, now: datetime, times: list[str]
) -> None:
    body = {"cron": cron, "zone": "Europe/Berlin", "count": 2}
    with clock.frozen(now):
        answer = bob.post(f"{SCHEDULES}/preview", body)
    assert answer.status_code == 200, answer.content
    assert json_of(answer)["times"] == times


def test_a_run_happens_once_in_an_hour_that_is_there_twice(bob: Api, machine: Machine) -> None:
    with clock.frozen(datetime(2026, 10, 24, 12, tzinfo=UTC)):
        job = made_job(bob)["workload"]["id"]
        end_job(bob, job)
        body = body_of(job, cron="30 2 * * *", zone="Europe/Berlin", overlap="queue")
        assert bob.post(SCHEDULES, body).status_code == 201
    for minute in (31, 91, 151):
        advance(datetime(2026, 10, 25, minute // 60, minute % 60, tzinfo=UTC))
    assert [run["due_at"] for run in runs_of(bob)] == ["2026-10-25T00:30:00+00:00"]


def test_who_changes_a_schedule_pays_from_then_on(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = create_nightly(bob)
    mia = Api.of(people.mia)
    with clock.frozen(EVENING):
        assert mia.patch(NIGHTLY, {"cron": "0 2 * * *"}).status_code == 200
        assert nightly(bob)["owner"] == "bob@example.org"  # nothing changed
        changed = json_of(mia.patch(NIGHTLY, {"cron": "0  4 * * *", "zone": "Asia/Tokyo"}))
    assert (changed["cron"], changed["owner"]) == ("0 4 * * *", "mia@example.org")
    assert changed["next_at"] == "2026-12-10T19:00:00+00:00"
    assert changed["job"] == job
    advance(at(10, 19))
    (run,) = runs_of(bob)
    made = json_of(bob.get(f"projects/vision/jobs/{run['job']}"))
    assert made["workload"]["submitted_by"] == "mia@example.org"
    event = AuditEvent.objects.get(verb="schedule.change")
    assert event.after == {"cron": "0 4 * * *", "zone": "Asia/Tokyo", "owner": people.mia.pk}


def test_a_change_of_the_job_is_what_starts_next(bob: Api, machine: Machine) -> None:
    create_nightly(bob)
    other = made_job(bob, args=["--quick"])["workload"]["id"]
    end_job(bob, other)
    with clock.frozen(EVENING):
        assert json_of(bob.patch(NIGHTLY, {"job": other}))["job"] == other
        bad = bob.patch(NIGHTLY, {"cron": "0 2 31 4 *"})
    assert (bad.status_code, json_of(bad)["field"]) == (422, "cron")
    advance(at(10, 2))
    (run,) = runs_of(bob)
    assert json_of(bob.get(f"projects/vision/jobs/{run['job']}"))["args"] == ["--quick"]


def test_a_paused_schedule_starts_nothing_and_makes_up_for_nothing(
    bob: Api, machine: Machine
) -> None:
    create_nightly(bob, missed="all")
    paused = json_of(bob.post(f"{NIGHTLY}/pause"))
    assert (paused["state"], paused["next_at"], paused["next_times"]) == ("paused", None, [])
    assert paused["explanation"] == "Paused by Bob."
    assert json_of(bob.post(f"{NIGHTLY}/pause"))["state"] == "paused"
    advance(at(12, 2))
    with clock.frozen(at(12, 3)):
        resumed = json_of(bob.post(f"{NIGHTLY}/resume"))
    assert (resumed["state"], resumed["next_at"]) == ("active", "2026-12-13T02:00:00+00:00")
    advance(at(12, 4))
    assert runs_of(bob) == []
    advance(at(13, 2))
    assert states_of(bob) == ["started"]


def test_a_run_beside_the_schedule_is_paid_by_who_asked(
    bob: Api, people: Personas, machine: Machine
) -> None:
    create_nightly(bob)
    mia = Api.of(people.mia)
    bob.post(f"{NIGHTLY}/pause")
    with clock.frozen(at(9, 21)):
        response = mia.post(f"{NIGHTLY}/run")
    assert response.status_code == 201, response.content
    advance(at(9, 22))
    (run,) = runs_of(bob)
    assert (run["state"], run["requested_by"]) == ("started", "mia@example.org")
    made = json_of(bob.get(f"projects/vision/jobs/{run['job']}"))
    assert made["workload"]["submitted_by"] == "mia@example.org"
    again = mia.post(f"{NIGHTLY}/run")
    assert (again.status_code, json_of(again)["code"]) == (409, "run_goes_on")


def test_schedules_of_other_projects_do_not_exist(
    bob: Api, people: Personas, machine: Machine
) -> None:
    create_nightly(bob)
    assert Api.of(people.charlie).get(NIGHTLY).status_code == 404
    assert Api.of(people.vera).get(NIGHTLY).status_code == 200
    assert Api.of(people.vera).post(f"{NIGHTLY}/run").status_code == 403
    foreign = body_of(made_job(bob)["workload"]["id"], name="theirs")
    answer = Api.of(people.charlie).post("projects/other/schedules", foreign)
    assert (answer.status_code, json_of(answer)["field"]) == (422, "job")


@pytest.mark.postgres
@pytest.mark.parametrize("loss", ["left", "only views", "suspended"])
def test_a_schedule_of_somebody_who_lost_access_pauses_until_another_person_resumes_it(
    bob: Api, people: Personas, machine: Machine, loss: str
) -> None:
    create_nightly(bob)
    member = Membership.objects.filter(project=people.vision, user=people.bob)
    if loss == "left":
        member.delete()
    elif loss == "only views":
        member.update(role=Role.VIEWER)
    else:
        User.objects.filter(pk=people.bob.pk).update(is_active=False)
    advance(at(10, 2))
    mia = Api.of(people.mia)
    schedule = nightly(mia)
    assert schedule["state"] == "paused"
    assert schedule["explanation"] == "Bob may no longer submit jobs in this project."
    assert states_of(mia) == ["refused"]
    (note,) = json_of(mia.get("notifications"))["items"]
    assert (note["kind"], note["title"]) == ("schedule", "nightly: paused")
    assert note["path"] == "/p/vision/schedules/nightly"
    with clock.frozen(at(10, 3)):
        assert json_of(mia.post(f"{NIGHTLY}/resume"))["owner"] == "mia@example.org"
    assert json_of(mia.get("notifications"))["items"] == []
    advance(at(11, 2))
    assert states_of(mia) == ["refused", "started"]
