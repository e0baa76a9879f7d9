"""Pages of pipelines: runs, the steps of one, its buttons, and who is notified."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.compute.models import Tier
from portal.core import clock
from portal.endpoints.models import Endpoint, Revision
from portal.endpoints.ports import ServedModel
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun, StepRun
from portal.workloads.models import Workload
from slipway.schemas.endpoints import LimitsIn, RollbackRules
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.pipeline_runs import (
    advance,
    end_job,
    finish_three,
    start,
    states_of,
    step,
    steps_of,
    three_steps,
)
from tests.portal.registry.store import FILES
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

PIPELINES = "/p/vision/pipelines"
MOST_QUERIES = 28
ASKING = [
    {"name": "ok", "kind": "approval", "message": "Rows ${parameters.rows}?"},
    step("use", after=["ok"]),
]


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _decide(client: Client, run_id: str, verdict: str, note: str = "") -> Any:
    address = f"{PIPELINES}/{run_id}/steps/ok/decision"
    return client.post(address, {"verdict": verdict, "note": note})


def _notes(person: Any) -> list[dict[str, Any]]:
    """Return the notifications of a person about pipelines."""
    items = json_of(Api.of(person).get("notifications"))["items"]
    return [item for item in items if item["kind"] == "pipeline"]


def _edges(page: str) -> list[list[str]]:
    match = re.search(r'id="pipeline-edges"[^>]*>(.*?)</script>', page)
    assert match
    edges: list[list[str]] = json.loads(match[1])
    return edges


def test_the_list_shows_runs_and_can_be_searched(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, vera = browse(people.bob), browse(people.vera)
    empty = client.get(PIPELINES)
    assert "No pipelines yet" in text_of(empty)
    assert "slipway pipeline run flow.py --project vision" in text_of(empty)
    assert "/docs/pipelines" in html_of(empty)
    assert "slipway pipeline run" not in text_of(vera.get(PIPELINES))
    run_id = start(bob, three_steps())
    page = vera.get(PIPELINES)
    assert f"{PIPELINES}/{run_id}" in html_of(page)
    assert "running 0 of 3 Bob" in text_of(page)
    for query, is_listed in (
        ("q=DIG", True),
        ("q=other", False),
        ("state=running", True),
        ("state=failed", False),
        ("who=me", False),
    ):
        assert (run_id in html_of(vera.get(f"{PIPELINES}?{query}"))) == is_listed, query
    assert run_id in html_of(client.get(f"{PIPELINES}?who=me"))
    assert browse(people.charlie).get(PIPELINES).status_code == 404


def test_the_page_shows_the_graph_and_what_each_step_has_done(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    vera, run_id = browse(people.vera), start(bob, three_steps(), parameters={"rows": 7})
    page = vera.get(f"{PIPELINES}/{run_id}")
    assert _edges(html_of(page)) == [["prepare", "train"], ["train", "compare"]]
    assert "prepare runs." in text_of(page)
    assert "train waiting Waits for prepare." in text_of(page)
    assert "Paid by Bob" in text_of(page)
    assert "rows 7" in text_of(page)
    assert "Differences from another run" not in text_of(page)
    prepare = steps_of(bob, run_id)["prepare"]["job"]
    assert html_of(page).count(f'href="/p/vision/jobs/{prepare}"') == 2
    assert f'href="?log={prepare}#log-title"' in html_of(page)
    assert "Log of prepare" in text_of(page)  # it runs
    finish_three(bob, machine, run_id, accuracy=0.75)
    page = vera.get(f"{PIPELINES}/{run_id}")
    assert "Steps ended 3 of 3" in text_of(page)
    assert "Log of" not in text_of(page)
    assert "Log of prepare" in text_of(vera.get(f"{PIPELINES}/{run_id}?log={prepare}"))
    assert "accuracy 0.75" in text_of(page)
    assert f'href="/p/vision/runs/{run_id_of(prepare)}"' in html_of(page)
    job_page = vera.get(f"/p/vision/jobs/{prepare}")
    assert "step prepare of the pipeline digits" in text_of(job_page)
    assert f'href="{PIPELINES}/{run_id}"' in html_of(job_page)


def test_a_run_is_for_its_project_and_viewers_have_no_buttons(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id = start(bob, ASKING)
    vera, charlie = browse(people.vera), browse(people.charlie)
    page = text_of(vera.get(f"{PIPELINES}/{run_id}"))
    assert "Rows 10?" in page
    assert "The decision needs the role maintainer." in page
    for button in ("Run again", "Cancel", "Resume", "Decline"):
        assert button not in page, button
    for address in (f"{PIPELINES}/{run_id}", f"/p/other/pipelines/{run_id}"):
        assert charlie.get(address).status_code == 404
    for verb in ("cancel", "resume", "repeat"):
        assert vera.post(f"{PIPELINES}/{run_id}/{verb}").status_code == 403
        assert charlie.post(f"{PIPELINES}/{run_id}/{verb}").status_code == 404
        assert charlie.post(f"/p/other/pipelines/{run_id}/{verb}").status_code == 404
    assert _decide(vera, run_id, "approve").status_code == 403
    assert _decide(charlie, run_id, "approve").status_code == 404
    assert StepRun.objects.get(run=run_id, step="ok").state == "approval"


def test_a_run_is_cancelled_and_resumed_by_somebody_who_pays_then(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id, mia = start(bob, three_steps()), browse(people.mia)
    question = text_of(mia.get(f"{PIPELINES}/{run_id}/cancel"))
    assert "Jobs that are stopped: 1." in question
    answer = mia.post(f"{PIPELINES}/{run_id}/cancel")
    assert answer.headers["Location"] == f"{PIPELINES}/{run_id}"
    advance()
    job = str(StepRun.objects.get(run=run_id, step="prepare").job_id)
    if Workload.objects.get(pk=job).state == "stopping":
        end_job(job, machine, reason="user")
    assert "Cancelled by Mia." in text_of(mia.get(f"{PIPELINES}/{run_id}"))
    assert "no effect" in text_of(mia.get(f"{PIPELINES}/{run_id}/cancel"))
    page = text_of(mia.post(f"{PIPELINES}/{run_id}/resume", follow=True))
    assert "digits is running again. You pay for its further jobs." in page
    run = PipelineRun.objects.get(pk=run_id)
    assert (run.state, run.owner, run.attempt) == ("running", people.mia, 2)
    again = text_of(mia.post(f"{PIPELINES}/{run_id}/resume", follow=True))
    assert "The run is running, so it cannot be resumed." in again


@pytest.mark.thorough
def test_a_run_is_repeated_with_and_without_reuse(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    first, mia = start(bob, three_steps(), parameters={"rows": 7}), browse(people.mia)
    finish_three(bob, machine, first)
    answer = mia.post(f"{PIPELINES}/{first}/repeat")
    second = PipelineRun.objects.exclude(pk=first).get()
    assert answer.headers["Location"] == f"{PIPELINES}/{second.pk}"
    assert (second.owner, second.parameters, second.force) == (people.mia, {"rows": 7}, False)
    advance()
    assert set(states_of(bob, second.pk).values()) == {"reused"}
    page = mia.get(f"{PIPELINES}/{second.pk}")
    assert "Reused 3" in text_of(page)
    assert f'href="{PIPELINES}/{first}"' in html_of(page)
    assert "Parameters, steps and code are the same." in text_of(page)
    mia.post(f"{PIPELINES}/{first}/repeat", {"force": "yes"})
    third = PipelineRun.objects.exclude(pk__in=[first, second.pk]).get()
    assert third.force
    advance()
    assert states_of(bob, third.pk)["prepare"] == "running"


@pytest.mark.thorough
def test_the_page_shows_what_differs_from_the_previous_run(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    first = start(bob, three_steps(), parameters={"rows": 7})
    finish_three(bob, machine, first)
    steps = [*three_steps(retries=2), step("report", after=["compare"])]
    second = start(bob, steps, parameters={"rows": 8})
    vera = browse(people.vera)
    page = text_of(vera.get(f"{PIPELINES}/{second}"))
    assert "Parameter rows 7 → 8" in page
    assert "Added steps report" in page
    assert "Step compare retries 0 → 2" in page
    assert "Code the same snapshot" in page
    page = text_of(vera.get(f"{PIPELINES}/{first}"))
    assert "Compare with" in page  # nothing was before it
    assert "Its values come first" not in page
    page = text_of(vera.get(f"{PIPELINES}/{first}?with={second}"))
    assert "Parameter rows 8 → 7" in page
    assert "Removed steps report" in page
    assert vera.get(f"{PIPELINES}/{first}?with={first}").status_code == 404
    assert vera.get(f"{PIPELINES}/{first}?with=ppr_none").status_code == 404
    third = start(bob, three_steps()[:2], parameters={"rows": 8})
    page = text_of(vera.get(f"{PIPELINES}/{third}"))
    assert "Removed steps compare, report" in page
    assert "Compare code" not in page  # its jobs have not started
    prepare = steps_of(bob, second)["prepare"]["job"]
    end_job(prepare, machine, {"data": "d.csv"}, files=("d.csv",))
    page = html_of(vera.get(f"{PIPELINES}/{second}"))
    match = re.search(r'href="([^"]*)">Compare code and environment', page)
    assert match
    assert vera.get(match[1].replace("&amp;", "&")).status_code == 200


def test_values_that_differ_from_another_run_are_shown(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    outputs = {"accuracy": {"type": "number"}, "model": {"type": "file"}}
    runs = []
    for accuracy in (0.9, 0.95):
        runs.append(start(bob, [step("train", outputs=outputs, cache=False)]))
        job = steps_of(bob, runs[-1])["train"]["job"]
        end_job(job, machine, {"accuracy": accuracy, "model": "m.pt"}, files=("m.pt",))
    page = text_of(browse(people.vera).get(f"{PIPELINES}/{runs[1]}"))
    assert "Outputs of train accuracy 0.9 → 0.95 Code" in page


def test_items_of_a_fan_out_have_values_reasons_and_jobs(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    steps = [step("fan", foreach=[3, 5], inputs={"n": "${item}"}, outputs={"m": {"type": "any"}})]
    run_id = start(bob, steps)
    items = [row.job_id for row in StepRun.objects.filter(run=run_id, item__gte=0).order_by("item")]
    end_job(str(items[0]), machine, {"m": 30})
    page = browse(people.vera).get(f"{PIPELINES}/{run_id}")
    assert "1 of 2 items of fan have ended" in text_of(page)
    assert "1 3 succeeded" in text_of(page)
    assert "m 30" in text_of(page)
    assert all(f'href="/p/vision/jobs/{job}"' in html_of(page) for job in items)


def test_versions_that_a_run_registers_lead_to_their_endpoints(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    steps = [
        step("train", outputs={"model": {"type": "file"}}),
        {
            "name": "register",
            "kind": "register",
            "model": "digits",
            "source": "${steps.train.outputs.model}",
        },
    ]
    run_id, vera = start(bob, steps), browse(people.vera)
    files = tuple(f"model/{name}" for name in FILES)
    end_job(steps_of(bob, run_id)["train"]["job"], machine, {"model": "model"}, files=files)
    page = vera.get(f"{PIPELINES}/{run_id}")
    assert "digits version 1 register none" in text_of(page)
    assert html_of(page).count('href="/p/vision/models/digits/versions/1"') == 2
    _serve_version(people, "shop", "1")
    _serve_version(people, "other", "2")
    page = vera.get(f"{PIPELINES}/{run_id}")
    assert "digits version 1 register shop revision 1, serving" in text_of(page)
    assert "other revision" not in text_of(page)


def _serve_version(people: Personas, name: str, version: str) -> None:
    endpoint = Endpoint.objects.create(
        project=people.vision,
        name=name,
        made_by=people.alice,
        tier=Tier.objects.get(slug="small"),
        state="serving",
        limits=LimitsIn().model_dump(),
        rules=RollbackRules().model_dump(),
    )
    served = ServedModel(model="digits", version=version, format="onnx").model_dump()
    Revision.objects.create(
        endpoint=endpoint,
        number=1,
        made_by=people.alice,
        model="digits",
        model_version=version,
        served=served,
        state="serving",
        weight=100,
    )


def test_a_step_is_approved_and_declined_with_a_note(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id, mia = start(bob, ASKING), browse(people.mia)
    page = mia.get(f"{PIPELINES}/{run_id}")
    assert "ok waits for approval." in text_of(page)
    assert "Approve ok?" in text_of(page)
    low = browse(people.bob)
    assert "needs the role maintainer" in text_of(low.get(f"{PIPELINES}/{run_id}"))
    assert "needs the role maintainer" in text_of(
        low.post(f"{PIPELINES}/{run_id}/steps/ok/decision", {"verdict": "approve"}, follow=True)
    )
    long = _decide(mia, run_id, "approve", "x" * 501)
    assert long.status_code == 422
    assert "at most 500 characters" in text_of(long)
    assert _decide(mia, run_id, "perhaps").status_code == 422
    assert StepRun.objects.get(run=run_id, step="ok").state == "approval"
    assert _decide(mia, run_id, "decline", "Too few.").status_code == 302
    advance()
    assert "Declined by Mia. Too few." in text_of(mia.get(f"{PIPELINES}/{run_id}"))
    mia.post(f"{PIPELINES}/{run_id}/resume")
    advance()
    assert _decide(mia, run_id, "approve").status_code == 302
    advance()
    assert states_of(bob, run_id) == {"ok": "succeeded", "use": "running"}
    late = mia.post(f"{PIPELINES}/{run_id}/steps/ok/decision", {"verdict": "approve"}, follow=True)
    assert "there is nothing to decide" in text_of(late)
    none = mia.post(f"{PIPELINES}/{run_id}/steps/none/decision", {"verdict": "approve"})
    assert none.status_code == 404


def test_a_step_that_waits_is_a_notification_to_those_who_can_decide(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id = start(bob, ASKING)
    for person in (people.mia, people.alice):
        (note,) = _notes(person)
        assert note["title"] == "Approve step ok of the pipeline digits?"
        assert (note["reason"], note["waits_for_you"]) == ("Rows 10?", True)
        assert note["path"] == f"{PIPELINES}/{run_id}"
    for person in (people.bob, people.vera, people.charlie):
        assert _notes(person) == []
    mia = browse(people.mia)
    cards = ("/notifications/card", "/p/vision/notifications/card")  # of Home and the project
    for address in ("/notifications", *cards):
        assert "Approve step ok of the pipeline digits?" in text_of(mia.get(address)), address
    _decide(mia, run_id, "approve")
    assert _notes(people.mia) == []
    start(bob, [{"name": "ok", "kind": "approval", "approvers": "owner"}])
    assert _notes(people.mia) == []
    assert len(_notes(people.alice)) == 1


def test_a_failed_run_is_a_notification_to_its_owner_until_the_next_run(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id = start(bob, [step("train", script="train.py")])
    end_job(steps_of(bob, run_id)["train"]["job"], machine, reason="exit")
    assert PipelineRun.objects.get(pk=run_id).state == "failed"
    (note,) = _notes(people.bob)
    assert (note["title"], note["id"]) == ("The pipeline digits failed", run_id)
    assert note["reason"].startswith("Step train failed:")
    assert note["next_step"]
    assert _notes(people.mia) == []
    with clock.frozen(clock.now() + timedelta(days=8)):
        assert _notes(people.bob) == []
    browse(people.bob).post(f"{PIPELINES}/{run_id}/repeat")
    assert _notes(people.bob) == []


def test_the_palette_finds_runs_by_the_name_of_their_pipeline(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    run_id = start(bob, three_steps())
    address = f'data-url="{PIPELINES}/{run_id}"'
    assert address in html_of(browse(people.vera).get("/palette?q=digi"))
    assert address not in html_of(browse(people.charlie).get("/palette?q=digi"))


@pytest.mark.thorough
def test_pages_cost_as_many_queries_for_many_steps_as_for_few(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    vera = browse(people.vera)
    counts: list[list[int]] = []
    for number in (2, 3):
        steps = [step(f"fan{at}", foreach=[*range(at, at + number + 1)]) for at in range(number)]
        for _ in range(number + 1):
            run_id = start(bob, steps)
        counts.append([])
        for address in (PIPELINES, f"{PIPELINES}/{run_id}"):
            vera.get(address)
            with CaptureQueriesContext(connection) as queries:
                assert vera.get(address).status_code == 200
            counts[-1].append(len(queries))
    assert counts[0] == counts[1]
    assert max(counts[1]) <= MOST_QUERIES
