"""Lists of pages show their first rows and say how many others there are."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.accounts.models import Invitation
from portal.compute.models import Tier, TierPrice
from portal.core import clock
from portal.datasets.models import Dataset
from portal.spend.models import Budget
from portal.training.models import Checkpoint, Job
from portal.web.views import datasets, home, jobs, members, profile, spend, tiers
from slipway.schemas.accounts import Role
from tests.personas import PASSWORD, Personas, make_user
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, use_store
from tests.portal.web.reading import text_of
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
