"""Pools on pages: those of administrators, one's own account, the choice in forms, jobs in one."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.accounts.models import User
from portal.accounts.services.projects import archive_project, create_project
from portal.compute.engines import Engine, Owner
from portal.compute.models import Pool, PoolAccount
from portal.compute.services.pool_accounts import PROOF_WITHIN, check_links, request_link
from portal.compute.services.pools import change_pool, create_pool, remove_pool
from portal.core.clock import frozen, now
from portal.sweeps.models import Sweep
from portal.training.models import Job
from portal.workloads.models import Allocation, AllocationUsage, Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, take_code, use_store
from tests.portal.web.reading import fault_of, form_of, html_of, text_of
from tests.portal.workloads.machines import Machine, make_machine, make_tier

NEW_JOB, NEW_SWEEP = "/p/vision/jobs/new", "/p/vision/sweeps/new"
PAGES = ("", "/new", "/twin", "/twin/remove")


@pytest.fixture(autouse=True)
def machine(people: Personas, settings: Settings, tmp_path: Path) -> Machine:
    """A machine with two places of the tier small."""
    use_store(settings, tmp_path)
    made = make_machine("lab-1", cpus=2, gib=8)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


def make_pool(name: str = "twin", **changes: Any) -> Pool:
    """Create a pool of two local places."""
    fields: dict[str, Any] = {"engine": "local", "settings": {"places": 2}} | changes
    return create_pool(name=name, **fields)


def make_personal_pool(name: str = "personal", **changes: Any) -> Pool:
    """Create a pool of Slurm in which each person has an account."""
    return make_pool(name, engine="slurm", settings={"as_person": True}, **changes)


def _new_pool(**changes: str) -> dict[str, str]:
    form = {
        "name": "gpu",
        "engine": "slurm",
        "settings": "partition=gpu\naccount=vision",
        "most_requests": "20",
        "price_percent": "80",
        "audience": "all",
        "projects": "",
    }
    return form | changes


def _settings_form(**changes: str) -> dict[str, str]:
    form = {"settings": "places=2", "most_requests": "8", "price_percent": "100"}
    form |= {"audience": "all", "projects": ""}
    return form | changes


def _job_form(people: Personas, **changes: str) -> dict[str, str]:
    form = {
        "snapshot": take_code(people.vision, people.bob),
        "script": "train.py",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
    }
    return form | changes


def _sweep_form(people: Personas, **changes: str) -> dict[str, str]:
    search = {
        "params": "lr=uniform(0,1)",
        "metric": "accuracy",
        "goal": "max",
        "algorithm": "random",
        "trials": "4",
        "parallel": "2",
        "retries": "0",
        "seed": "0",
        "scheduler": "none",
        "min_values": "1",
        "eta": "3",
    }
    return _job_form(people, **search) | changes


@pytest.mark.parametrize("page", PAGES)
def test_administrators_alone_open_the_pages_of_pools(
    people: Personas, browse: Browse, page: str
) -> None:
    make_pool()
    assert browse(people.root).get(f"/settings/pools{page}").status_code == 200
    assert browse(people.alice).get(f"/settings/pools{page}").status_code == 403


@pytest.mark.parametrize("page", ["none", "none/remove", "none/account"])
def test_a_pool_that_does_not_exist_is_not_found(
    people: Personas, browse: Browse, page: str
) -> None:
    assert browse(people.root).get(f"/settings/pools/{page}").status_code == 404


def test_an_empty_list_says_what_a_pool_is(people: Personas, browse: Browse) -> None:
    page = html_of(browse(people.root).get("/settings/pools"))
    assert "machines that another scheduler allocates" in page
    assert 'href="/docs/pools"' in page
    assert 'href="/settings/pools/new"' in page


def test_the_list_has_the_use_of_each_pool_and_the_problem_of_its_engine(
    people: Personas, browse: Browse
) -> None:
    pool = make_pool(projects=[people.vision])
    make_pool("closed", most_requests=3)
    change_pool(pool=Pool.objects.get(name="closed"), is_open=False)
    make_job(people.vision, people.bob, pool="twin")
    Pool.objects.filter(pk=pool.pk).update(problem="Slurm does not answer: <b>timeout</b>")
    page = browse(people.root).get("/settings/pools")
    assert "&lt;b&gt;timeout&lt;/b&gt;" in html_of(page)
    text = text_of(page)
    assert "twin Slurm does not answer: <b>timeout</b> Local processes open problem" in text
    assert "0 of 8 1 vision" in text
    assert "closed Local processes closed 0 of 3 0 all projects" in text


def test_the_list_asks_as_many_queries_however_many_pools(people: Personas, browse: Browse) -> None:
    root, counts = browse(people.root), []
    for number in range(2):
        for index in range(3):
            make_pool(f"pool-{number}-{index}", projects=[people.vision, people.other])
        with CaptureQueriesContext(connection) as queries:
            root.get("/settings/pools")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_an_administrator_creates_changes_closes_and_removes_a_pool(
    people: Personas, browse: Browse
) -> None:
    root = browse(people.root)
    answer = root.post("/settings/pools/new", _new_pool(), follow=True)
    assert "Pool gpu created." in text_of(answer)
    pool = Pool.objects.get(name="gpu")
    assert pool.settings == {"partition": "gpu", "account": "vision"}
    assert (pool.engine, pool.most_requests, pool.is_for_all) == ("slurm", 20, True)
    form = _settings_form(
        settings='partition="2024"\nas_person=true', audience="some", projects="vision, other"
    )
    assert "Saved." in text_of(root.post("/settings/pools/gpu", form, follow=True))
    pool.refresh_from_db()
    assert pool.settings == {"partition": "2024", "as_person": True}
    assert set(pool.projects.all()) == {people.vision, people.other}
    shown = form_of(root.get("/settings/pools/gpu")).initial
    assert shown["settings"] == 'as_person=true\npartition="2024"'
    assert (shown["audience"], shown["projects"]) == ("some", "other vision")
    page = root.post("/settings/pools/gpu/change", {"do": "close"}, follow=True)
    assert "gpu is closed: it takes no new work." in text_of(page)
    assert "gpu is open." in text_of(
        root.post("/settings/pools/gpu/change", {"do": "open"}, follow=True)
    )
    assert root.post("/settings/pools/gpu/change", {"do": "burn"}).status_code == 422
    assert "Remove pool gpu?" in text_of(root.get("/settings/pools/gpu/remove"))
    assert "Pool gpu removed." in text_of(root.post("/settings/pools/gpu/remove", follow=True))
    assert root.get("/settings/pools/gpu").status_code == 404


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": ""}, "name", "required"),
        ({"name": "New Pool"}, "name", "lower-case letters"),
        ({"name": "../../etc"}, "name", "lower-case letters"),
        ({"name": "<script>"}, "name", "lower-case letters"),
        ({"name": "x" * 33}, "name", "at most 32"),
        ({"name": "new"}, "name", "address of the page"),
        ({"name": "twin"}, "name", "A pool twin already exists."),
        ({"engine": "nomad"}, "engine", "valid choice"),
        ({"settings": "partition"}, "settings", "must have the form name=value"),
        ({"settings": "<b>=1"}, "settings", "must have the form name=value"),
        ({"settings": "partition=a\npartition=b"}, "settings", "partition is there twice"),
        ({"settings": "partitions=a"}, "settings", "has no setting partitions"),
        ({"settings": "partition=a b"}, "settings", "The setting partition is not valid"),
        ({"settings": "user=root;id"}, "settings", "The setting user is not valid"),
        ({"settings": "partition=" + "[" * 7000}, "settings", "The setting partition"),
        ({"settings": "partition=" + "1" * 7000}, "settings", "The setting partition"),
        ({"engine": "local", "settings": "places=0"}, "settings", "from 1 to 64"),
        ({"engine": "local", "settings": "places=NaN"}, "settings", "from 1 to 64"),
        ({"most_requests": "0"}, "most_requests", "greater than or equal to 1"),
        ({"most_requests": "many"}, "most_requests", "whole number"),
        ({"audience": "nobody"}, "audience", "valid choice"),
        ({"audience": "some", "projects": "no-where"}, "projects", "no project no-where"),
        ({"projects": "vision"}, "projects", "Only these projects"),
    ],
)
def test_a_wrong_value_is_named_at_its_field(
    people: Personas, browse: Browse, changes: dict[str, str], field: str, words: str
) -> None:
    make_pool()
    answer = browse(people.root).post("/settings/pools/new", _new_pool(**changes))
    assert answer.status_code == 422
    assert words in fault_of(answer, field)
    assert Pool.objects.count() == 1


def test_a_pool_keeps_projects_that_were_archived_since(people: Personas, browse: Browse) -> None:
    old = create_project(by=people.alice, name="Old")
    pool = make_pool(projects=[people.vision, old])
    archive_project(project=old)
    form = _settings_form(settings="places=5", audience="some", projects="old vision")
    assert browse(people.root).post("/settings/pools/twin", form).status_code == 302
    pool.refresh_from_db()
    assert pool.settings == {"places": 5}
    assert set(pool.projects.all()) == {people.vision, old}


def test_a_pool_in_use_is_not_removed(people: Personas, browse: Browse) -> None:
    make_pool()
    make_job(people.vision, people.bob, pool="twin")
    root = browse(people.root)
    assert "Work waits or runs in pool twin (1)." in text_of(
        root.get("/settings/pools/twin/remove")
    )
    answer = root.post("/settings/pools/twin/remove", follow=True)
    assert "Work waits or runs in pool twin (1). Close the pool" in text_of(answer)
    assert Pool.objects.present().exists()


def _ordered(job: Job, **changes: Any) -> Allocation:
    pool = Pool.objects.get(name="twin")
    fields: dict[str, Any] = {"state": "submitted", "handle": "4711", "epoch": 1} | changes
    return Allocation.objects.create(workload=job.workload, pool=pool, **fields)


def test_the_page_of_a_pool_has_what_its_engine_holds(people: Personas, browse: Browse) -> None:
    make_pool()
    job = make_job(people.vision, people.bob, pool="twin", name="secret plan")
    reason = "QOSMaxJobsPerUserLimit (its owner runs as many jobs as the QoS allows)."
    allocation = _ordered(job, detail=reason, account="bob7")
    page = text_of(browse(people.root).get("/settings/pools/twin"))
    assert f"another project's job {reason} waiting 4711 account bob7" in page
    assert "1 of 8 in the engine, 0 more waiting in Slipway" in page
    assert "secret plan" not in page
    User.objects.filter(pk=people.bob.pk).update(is_administrator=True)
    bob = browse(User.objects.get(pk=people.bob.pk))
    assert "secret plan, a job of Vision" in text_of(bob.get("/settings/pools/twin"))
    assert f'href="/p/vision/workloads/{job.pk}"' in html_of(bob.get("/settings/pools/twin"))
    for changes, state in (
        ({"detail": ""}, "starting 4711"),
        ({"state": "ordered", "handle": ""}, "submitting none yet"),
        ({"state": "submitted", "stopped_at": now()}, "stopping"),
    ):
        Allocation.objects.filter(pk=allocation.pk).update(**changes)
        assert state in text_of(bob.get("/settings/pools/twin"))
    Allocation.objects.filter(pk=allocation.pk).update(state="ended")
    page = text_of(bob.get("/settings/pools/twin"))
    assert "Requests in the engine None." in page
    assert "0 of 8 in the engine, 1 more waiting in Slipway" in page


def test_a_pool_is_chosen_in_the_forms_of_jobs_and_sweeps(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    for address in (NEW_JOB, NEW_SWEEP):
        assert 'name="pool"' not in html_of(bob.get(address))
    make_pool()
    make_pool("foreign", projects=[people.other])
    for address in (NEW_JOB, NEW_SWEEP):
        page = html_of(bob.get(address))
        assert "Own nodes" in page
        assert "twin · Local processes" in page
        assert "foreign" not in page
    quote = bob.post("/p/vision/jobs/quote", _job_form(people, pool="twin"))
    assert "Local processes decides when it starts in pool twin." in text_of(quote)
    assert bob.post(NEW_JOB, _job_form(people, pool="twin")).status_code == 302
    assert Job.objects.get().workload.pool == Pool.objects.get(name="twin")
    assert bob.post(NEW_JOB, _job_form(people)).status_code == 302
    assert Workload.objects.filter(pool__isnull=True).count() == 1
    assert bob.post(NEW_SWEEP, _sweep_form(people, pool="twin")).status_code == 302
    sweep = Sweep.objects.get()
    assert sweep.job["pool"] == "twin"
    assert "· pool twin" in text_of(bob.get(f"/p/vision/sweeps/{sweep.pk}"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("closed", "There is no pool closed for project vision, or it is closed."),
        ("foreign", "There is no pool foreign for project vision, or it is closed."),
        ("none", "There is no pool none for project vision, or it is closed."),
        ("<script>alert(1)</script>", "This"),
        ("../twin", "This"),
        ("x" * 400, "at most 48"),
    ],
)
def test_a_refused_pool_is_an_error_at_its_field(
    people: Personas, browse: Browse, name: str, words: str
) -> None:
    make_pool()
    make_pool("foreign", projects=[people.other])
    change_pool(pool=make_pool("closed"), is_open=False)
    bob = browse(people.bob)
    for address, form in (
        (NEW_JOB, _job_form(people, pool=name)),
        (NEW_SWEEP, _sweep_form(people, pool=name)),
    ):
        answer = bob.post(address, form)
        assert answer.status_code == 422
        assert words in fault_of(answer, "pool")
        assert "<script>alert" not in html_of(answer)
    assert not Workload.objects.exists()


def test_a_clone_keeps_the_pool_and_may_change_it(people: Personas, browse: Browse) -> None:
    pool = make_pool()
    job = make_job(people.vision, people.bob, pool="twin")
    bob = browse(people.bob)
    for address in (NEW_JOB, NEW_SWEEP):
        page = html_of(bob.get(f"{address}?from={job.pk}"))
        assert re.search(r'<option value="twin" selected>', page)
    form = {"from": job.pk, "snapshot": job.snapshot.digest}
    bob.post(NEW_JOB, _job_form(people, **form, pool="twin"))
    bob.post(NEW_JOB, _job_form(people, **form, pool=""))
    clones = Job.objects.filter(cloned_from=job).order_by("pk")
    assert [clone.workload.pool for clone in clones] == [pool, None]
    change_pool(pool=pool, is_open=False)
    assert "twin · not available" in html_of(bob.get(f"{NEW_JOB}?from={job.pk}"))


def test_a_job_names_its_pool_with_a_link_for_those_who_can_open_it(
    people: Personas, browse: Browse
) -> None:
    pool = make_pool()
    job = make_job(people.vision, people.bob, pool="twin")
    bob = browse(people.bob)
    page = bob.get(f"/p/vision/jobs/{job.pk}")
    assert "Pool twin Local processes allocates its nodes" in text_of(page)
    assert 'href="/settings/pools/twin"' not in html_of(page)
    assert "pool twin" in text_of(bob.get("/p/vision/jobs"))
    User.objects.filter(pk=people.bob.pk).update(is_administrator=True)
    bob = browse(User.objects.get(pk=people.bob.pk))
    assert 'href="/settings/pools/twin"' in html_of(bob.get(f"/p/vision/jobs/{job.pk}"))
    Workload.objects.update(state="stopped")
    remove_pool(pool=pool)
    page = bob.get(f"/p/vision/jobs/{job.pk}")
    assert "Pool twin" in text_of(page)
    assert 'href="/settings/pools/twin"' not in html_of(page)
    other = make_job(people.vision, people.bob)
    run_passes()
    assert "<dt>Pool</dt>" not in html_of(bob.get(f"/p/vision/jobs/{other.pk}"))


def test_administrators_find_pools_and_open_them_from_the_audit_log(
    people: Personas, browse: Browse
) -> None:
    pool = make_pool("otter")
    root, alice = browse(people.root), browse(people.alice)
    assert 'data-url="/settings/pools/otter"' in html_of(root.get("/palette?q=otter"))
    assert "/settings/pools" not in html_of(alice.get("/palette?q=otter"))
    assert 'data-url="/settings/pools/new"' in html_of(root.get("/palette?q=new+pool"))
    log = root.get("/settings/audit?target_kind=pool")
    assert re.search(
        r'created the pool <a [^>]*href="/settings/pools/otter">otter</a>', html_of(log)
    )
    assert "created the pool otter" in text_of(log)
    remove_pool(pool=pool)
    make_pool("otter")
    page = html_of(root.get("/settings/audit?target_kind=pool"))
    assert page.count('href="/settings/pools/otter"') == 1, "a removed pool has no page"
    assert "created the pool otter" in page


class _Slurm:
    """The part of Slurm that knows who owns jobs."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return the owner of every job."""
        return frozenset({self._owner})


def _prove(pool: Pool, account: PoolAccount, owner: Owner) -> None:
    check_links(pool, cast(Engine, _Slurm(owner)))
    account.refresh_from_db()
    assert not account.code


def test_a_person_links_an_account(people: Personas, browse: Browse) -> None:
    pool = make_personal_pool()
    bob = browse(people.bob)
    profile = bob.get("/settings/profile")
    assert 'href="/settings/pools/personal/account"' in html_of(profile)
    assert "Slurm not linked never" in text_of(profile)
    assert "link your account" in text_of(bob.get(NEW_JOB))
    refused = bob.post(NEW_JOB, _job_form(people, pool="personal"))
    assert "it is not linked. Link it under Settings → Profile" in fault_of(refused, "pool")
    refused = bob.post(NEW_SWEEP, _sweep_form(people, pool="personal"))
    assert "it is not linked" in fault_of(refused, "pool")
    address = "/settings/pools/personal/account"
    assert "not linked" in text_of(bob.get(address))
    page = bob.post(address, follow=True)
    account = PoolAccount.objects.get()
    assert f"sbatch --job-name={account.code}" in text_of(page)
    assert account.code not in html_of(browse(people.vera).get(address))
    assert account.code in html_of(bob.post(address, follow=True)), "the same one is waited for"
    with frozen(now() + PROOF_WITHIN + timedelta(minutes=1)):
        page = bob.get(address)
        assert account.code not in html_of(page)
        assert "Get the command" in text_of(page)
    _prove(pool, account, Owner("root", 0))
    assert "The last proof was refused: root is an account of the system" in text_of(
        bob.get(address)
    )
    _prove(pool, request_link(pool=pool, user=people.bob), Owner("bob7", 1007))
    words = text_of(bob.get(address))
    assert "linked Account bob7 Linked" in words
    assert "Link another account" in words
    assert "bob7" in text_of(bob.get("/settings/profile"))
    assert "link your account" not in text_of(bob.get(NEW_JOB))
    assert bob.post(NEW_JOB, _job_form(people, pool="personal")).status_code == 302


def test_a_given_account_is_shown_and_needs_no_proof(people: Personas, browse: Browse) -> None:
    settings = {"image": "i", "as_person": True, "people": f"{people.bob.email}=bob7"}
    create_pool(name="given", engine="kubernetes", settings=settings)
    bob, address = browse(people.bob), "/settings/pools/given/account"
    words = text_of(bob.get(address))
    assert "belongs to the account bob7, which an administrator gave you" in words
    assert "Get the command" not in words
    assert address not in html_of(bob.get("/settings/profile"))
    assert "you have no account there" in text_of(browse(people.vera).get(address))


def test_an_account_page_is_for_those_who_may_use_the_pool(
    people: Personas, browse: Browse
) -> None:
    make_personal_pool("theirs", projects=[people.other])
    make_pool()
    bob = browse(people.bob)
    for ask in (bob.get, bob.post):
        assert ask("/settings/pools/theirs/account").status_code == 404
    assert "Accounts in pools" not in text_of(bob.get("/settings/profile"))
    page = text_of(bob.get("/settings/pools/twin/account"))
    assert "All work in twin has one owner, so there is no account to link." in page
    answer = bob.post("/settings/pools/twin/account", follow=True)
    assert "All work in pool twin has one owner" in text_of(answer)
    assert not PoolAccount.objects.exists()


def test_the_page_of_a_pool_has_its_price_and_both_bills(people: Personas, browse: Browse) -> None:
    pool = make_pool(price_percent=80)
    job = make_job(people.vision, people.bob, tier="small", pool="twin")
    for number, elapsed_s in enumerate((3600, None), 1):
        allocation = Allocation.objects.create(
            workload=job.workload, pool=pool, epoch=number, state="ended", handle=str(number)
        )
        known = {} if elapsed_s is None else {"accounted_at": now(), "elapsed_s": elapsed_s}
        AllocationUsage.objects.create(
            allocation=allocation,
            pool=pool,
            ended_at=now(),
            due_at=now() if elapsed_s is None else None,
            billed_ms=1_800_000,
            billed_cpu_ms=1_800_000,
            billed_nano_usd=2_000_000_000,
            **(known and known | {"machines": 1, "cpu_s": 7200, "accounted_nano_usd": 5 * 10**9}),
        )
    admin = browse(people.root)
    page = text_of(admin.get("/settings/pools/twin?window=today"))
    assert "80 % of the price of the tier" in page
    assert "Local processes has accounted 1 of 2 ended allocations." in page
    assert "Difference $3.00" in page
    assert "Not accounted yet: 1. Billed for them: $2.00." in page
    assert admin.get("/settings/pools/twin?window=ever").status_code in (400, 422)
    form = html_of(browse(people.bob).get(NEW_JOB))
    assert "80 % of the tier" in form
