"""Which models came of a version of a dataset, by the runs and jobs that read it."""

from typing import Any

import pytest
from django.test import Client

from portal.experiments.models import ModelVersion
from portal.web.jobs.views import pages as jobs
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of, whole_list
from tests.portal.datasets.pushing import AT, push
from tests.portal.registry.store import Store
from tests.portal.registry.test_registering import register
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import make_machine, make_tier

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]
USES = f"{AT}/digits/versions/1/uses"


def test_a_version_of_data_tells_the_models_that_came_of_its_runs_and_jobs(
    bob: Api, people: Personas, store: Store
) -> None:
    push(bob, {"a.csv": b"x\n1\n"})
    make_machine("lab")
    make_tier("small")
    workload = place(made_job(bob))
    job = Api(token_of(workload.pk, workload.epoch))
    by_run, by_job, other = store.run(), store.run(workload=workload.pk), store.run()
    assert bob.post(USES, {"run": by_run}).status_code == 200
    assert job.post(USES, {}).status_code == 200
    for run_id, model in ((by_run, "by-run"), (by_job, "by-job"), (other, "other")):
        register(bob, run_id, model)
    uses = json_of(bob.get(USES))
    made = {(use["job"], use["run"]): [item["name"] for item in use["models"]] for use in uses}
    assert made == {(None, by_run): ["by-run"], (workload.pk, None): ["by-job"]}
    page = Client()
    page.force_login(people.vera)
    shown = page.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "/p/vision/models/by-run/versions/1" in shown
    assert f"/p/vision/runs/{by_run}" in shown
    # A run of another project that says it ran in this job makes no model of ours.
    elsewhere = Store(store.root, people.other.pk).run(workload=workload.pk)
    Api.of(people.charlie).post(
        "projects/other/models/theirs/versions", {"source": f"runs:/{elsewhere}/model"}
    )
    assert json_of(bob.get(USES)) == uses


@pytest.mark.thorough
def test_every_version_that_came_of_a_run_is_listed(bob: Api, store: Store) -> None:
    push(bob, {"a.csv": b"x\n1\n"})
    run_id = store.run()
    assert bob.post(USES, {"run": run_id}).status_code == 200
    register(bob, run_id)
    first = ModelVersion.objects.get(run_id=run_id)
    fields = {field.attname: getattr(first, field.attname) for field in first._meta.concrete_fields}
    for number in range(2, 206):
        ModelVersion.objects.create(**fields | {"version": number})
    [use] = json_of(bob.get(USES))
    assert len(use["models"]) == 205


@pytest.mark.thorough
def test_every_use_is_in_one_part_of_the_list(bob: Api, people: Personas, store: Store) -> None:
    """Readers come in parts, newest first, each with the models that came of it."""
    push(bob, {"a.csv": b"x\n1\n"})
    push(bob, {"a.csv": b"x\n2\n"})
    runs = [store.run() for _ in range(7)]
    for run_id in runs:
        assert bob.post(USES, {"run": run_id}).status_code == 200
    assert bob.post(f"{AT}/digits/versions/2/uses", {"run": runs[0]}).status_code == 200
    for at in (1, 6):
        register(bob, runs[at], f"model-{at}")
    parts: list[list[Any]] = []
    cursors: set[str] = set()
    cursor = ""
    while len(parts) < 10:
        answer = bob.get(f"{USES}?limit=3" + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status_code == 200
        parts.append(json_of(answer))
        cursor = answer.headers.get("X-Slipway-Next-Cursor", "")
        if not cursor:
            break
        assert cursor not in cursors
        cursors.add(cursor)
    assert [len(part) for part in parts] == [3, 3, 1]
    uses = [use for part in parts for use in part]
    assert [use["run"] for use in uses] == runs[::-1]
    made = {use["run"]: [model["name"] for model in use["models"]] for use in uses}
    assert made == {key: [] for key in runs} | {runs[1]: ["model-1"], runs[6]: ["model-6"]}
    assert whole_list(bob, USES) == uses
    whole = bob.get(f"{USES}?limit=7")
    assert (json_of(whole), "X-Slipway-Next-Cursor" in whole.headers) == (uses, False)
    # A new reader comes before the first part and moves none of the others.
    after = bob.get(f"{USES}?limit=3").headers["X-Slipway-Next-Cursor"]
    assert bob.post(USES, {"run": store.run()}).status_code == 200
    assert json_of(bob.get(f"{USES}?limit=3&cursor={after}")) == uses[3:6]
    for wrong in ("cursor=nothing", "limit=0", "limit=1000000"):
        assert bob.get(f"{USES}?{wrong}").status_code in (400, 422), wrong
    stranger = Api.of(people.charlie)
    assert stranger.get(f"{USES}?cursor={after}").status_code == 404


@pytest.mark.thorough
def test_every_version_that_a_job_reads_counts(
    bob: Api, people: Personas, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_machine("lab")
    make_tier("small")
    workload = place(made_job(bob))
    job = Api(token_of(workload.pk, workload.epoch))
    for number in range(3):
        push(bob, {"a.csv": f"x\n{number}\n".encode()})
        at = f"projects/vision/datasets/digits/versions/{number + 1}/uses"
        assert job.post(at, {}).status_code == 200
    monkeypatch.setattr(jobs, "READ_SHOWN", 1)
    page = Client()
    page.force_login(people.vera)
    shown = page.get(f"/p/vision/jobs/{workload.pk}").content.decode()
    assert "digits:1</a> and 2 more" in shown
