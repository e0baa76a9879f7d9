"""Lists of pages show their first rows and say how many others there are."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.accounts.models import Invitation, Membership, Project
from portal.compute.models import Tier, TierPrice
from portal.core import clock
from portal.datasets.models import Dataset
from portal.spend.models import Budget
from portal.training.models import Checkpoint, Job
from portal.web.account.views import profile
from portal.web.compute.views import nodes, tiers
from portal.web.datasets import views as datasets
from portal.web.home import activity
from portal.web.home import views as home
from portal.web.jobs import forms as job_forms
from portal.web.jobs.views import pages as jobs
from portal.web.projects.views import members
from portal.web.spend.views import spend
from portal.web.workloads import environment_builds
from portal.web.workloads import presenters as workloads
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from slipway.schemas.accounts import Role
from tests.personas import PASSWORD, Personas, make_user
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, run_job, take_code, use_store
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import make_machine, make_tier


@pytest.fixture
def tier(people: Personas, settings: Settings, tmp_path: Path) -> Tier:
    use_store(settings, tmp_path)
    make_machine("lab-1", cpus=2, gib=8)
    return make_tier("small", nano_usd_per_hour=3_600_000_000)


def test_invitations_beyond_the_first_are_counted(
    people: Personas, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        Invitation.objects.create(
            project=people.vision,
            email=f"new-{number}@example.org",
            role=Role.VIEWER,
            token_hash=str(number),
            invited_by=people.alice,
            expires_at=clock.now() + timedelta(days=1),
        )
    alice = browse(people.alice)
    assert "not shown here" not in text_of(alice.get("/p/vision/members"))
    monkeypatch.setattr(members, "OPEN_SHOWN", 1)
    assert "2 more open invitations not shown here." in text_of(alice.get("/p/vision/members"))


def test_invitations_at_home_beyond_the_first_are_counted(
    people: Personas, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "INVITATIONS_SHOWN", 1)
    for project in (people.vision, people.other):
        Invitation.objects.create(
            project=project,
            email="newcomer@example.org",
            role=Role.VIEWER,
            token_hash=project.pk,
            invited_by=people.alice,
            expires_at=clock.now() + timedelta(days=1),
        )
    page = text_of(browse(make_user("newcomer")).get("/"))
    assert "1 more invitation. Accept these to see them." in page


def test_sessions_beyond_the_first_are_counted(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "MOST_SESSIONS", 1)
    for _ in range(2):
        browser = Client()
        browser.post("/account/login", {"login": "alice@example.org", "password": PASSWORD})
    page = text_of(browser.get("/settings/sessions"))
    assert "1 more session not shown here." in page


def test_deleted_datasets_beyond_the_first_are_counted(
    people: Personas, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "DELETED_SHOWN", 1)
    for name in ("a", "b", "c"):
        Dataset.objects.create(
            project=people.vision, name=name, created_by=people.bob, deleted_at=clock.now()
        )
    page = text_of(browse(people.bob).get("/p/vision/datasets"))
    assert "2 more deleted datasets not shown here." in page


def test_checkpoints_and_clones_beyond_the_first_are_counted(
    people: Personas, browse: Browse, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(people.vision, people.bob)
    clones = [make_job(people.vision, people.bob) for _ in range(3)]
    Job.objects.filter(pk__in=[clone.pk for clone in clones]).update(cloned_from=job)
    Checkpoint.objects.bulk_create(
        Checkpoint(job=job, step=step, size_bytes=1, attempt=1) for step in range(4)
    )
    bob = browse(people.bob)
    with CaptureQueriesContext(connection) as whole:
        assert "not shown here" not in text_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    monkeypatch.setattr(jobs, "CHECKPOINTS", 1)
    monkeypatch.setattr(jobs, "CLONES", 1)
    with CaptureQueriesContext(connection) as shortened:
        page = text_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    assert "3 more checkpoints not shown here." in page
    assert "and 2 more" in page
    assert len(shortened) == len(whole) + 2


def test_events_and_unfinished_jobs_beyond_the_first_are_counted(
    people: Personas, browse: Browse, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, *_ = [make_job(people.vision, people.bob) for _ in range(3)]
    run_job(job)
    bob = browse(people.bob)
    monkeypatch.setattr(workloads, "EVENTS_SHOWN", 1)
    page = text_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    assert f"not shown here: slipway job events {job.pk} --project vision" in page
    for address in ("/", "/p/vision"):
        assert "more job" not in text_of(bob.get(address))
    monkeypatch.setattr(activity, "_SHOWN", 1)
    for address in ("/", "/p/vision"):
        assert "2 more jobs that run or wait not shown here." in text_of(bob.get(address))


def test_code_beyond_the_newest_is_counted(
    people: Personas, browse: Browse, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = [
        take_code(people.vision, people.bob, f"print({number})\n".encode()) for number in range(4)
    ]
    bob = browse(people.bob)
    assert "older snapshot" not in text_of(bob.get("/p/vision/jobs/new"))
    monkeypatch.setattr(job_forms, "RECENT_CODE", 1)
    assert "3 older snapshots not listed" in text_of(bob.get("/p/vision/jobs/new"))
    refused = bob.post("/p/vision/jobs/new", {"snapshot": digests[0], "script": "train.py"})
    assert "2 older snapshots not listed" in text_of(refused)


def test_tasks_on_a_node_beyond_the_first_are_counted(
    people: Personas, browse: Browse, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        make_job(people.vision, people.bob)
    run_passes()
    monkeypatch.setattr(nodes, "RUNNING_SHOWN", 1)
    page = text_of(browse(people.root).get("/settings/nodes/lab-1"))
    assert "1 more task not shown here." in page


def test_builds_beyond_the_first_are_counted(
    people: Personas, browse: Browse, settings: Settings, tmp_path: Path, monkeypatch: Any
) -> None:
    use_store(settings, tmp_path)
    machines = [make_machine(f"builder-{number}", cpus=1) for number in range(3)]
    make_tier("small")
    job = make_job(people.vision, people.bob, requirements="numpy==2.3.0", nodes=3)
    run_passes()
    environment = Workload.objects.get(pk=job.pk).environment
    for machine in machines:
        report = {"state": "building", "log_offset": 0, "log": "Collecting numpy\n"}
        answer = machine.call("POST", f"environments/{environment}/reports", report)
        assert answer.status_code == 200, answer.content
    bob = browse(people.bob)
    assert "more build" not in text_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    monkeypatch.setattr(environment_builds, "MOST_BUILDS", 1)
    page = text_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    assert "2 more builds on other nodes not shown here." in page


def test_every_project_can_be_chosen_for_a_token_a_budget_and_a_quota(
    people: Personas, browse: Browse
) -> None:
    Project.objects.bulk_create(
        Project(slug=f"many-{number:03}", name=f"Many {number:03}") for number in range(501)
    )
    Membership.objects.bulk_create(
        Membership(project=project, user=people.alice, role=Role.OWNER)
        for project in Project.objects.filter(slug__startswith="many-")
    )
    for person, address in (
        (people.alice, "/settings/tokens/new"),
        (people.alice, "/spend/budgets"),
        (people.root, "/settings/quotas"),
    ):
        assert 'value="many-500"' in html_of(browse(person).get(address)), address


def test_prices_beyond_the_first_are_counted(
    people: Personas, browse: Browse, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "PRICES_SHOWN", 1)
    TierPrice.objects.create(
        tier=tier,
        nano_usd_per_hour=1,
        effective_from=clock.now() + timedelta(seconds=1),
    )
    page = text_of(browse(people.root).get("/settings/tiers/small"))
    assert "1 more earlier price not shown here." in page


def test_budgets_beyond_the_first_are_counted(
    people: Personas, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spend, "_BUDGETS_SHOWN", 1)
    for person in (people.alice, people.bob, people.mia):
        Budget.objects.create(person=person, limit_nano_usd=1, made_by=people.root)
    page = text_of(browse(people.root).get("/spend/installation"))
    assert "2 more budgets" in page
    monkeypatch.setattr(spend, "_BUDGETS_AT_HOME", 1)
    assert "2 more budgets: show all" in text_of(browse(people.root).get("/spend/month"))
