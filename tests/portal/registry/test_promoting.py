"""Stages, aliases, gates, approvals: one line of history, and no way around."""

import math
import threading
from typing import Any

import httpx
import pytest

from portal.accounts.models import AuditEvent
from portal.core import clock
from portal.datasets.models import Dataset, DatasetUse
from portal.datasets.models import Version as DataVersion
from portal.datasets.services.uses import record_use
from portal.experiments.models import LatestMetric, ModelVersion, RegisteredModelAlias
from portal.registry.models import Move
from portal.registry.tasks import sync_mlflow
from portal.workloads.models import Workload
from portal.workloads.tokens import token_of
from tests.live import LivePortal
from tests.model_files import SOURCE, write_model
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import FILES, Store
from tests.portal.registry.test_registering import MODELS, register
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import make_machine, make_tier

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
RULES = "projects/vision/registry-rules"
DIGITS = f"{MODELS}/digits/versions"
ACCURACY = {"kind": "evaluation", "metric": "accuracy", "dataset": "digits:3"}


def put_gates(mia: Api, *gates: dict[str, Any], target: str = "Production") -> None:
    """Put the gates of one stage, or of the alias champion, in force."""
    rules = json_of(mia.get(RULES))
    kind = "stage" if target in rules["stages"] else "alias"
    body = {
        "stages": rules["stages"],
        "gates": [{"kind": kind, "name": target, "gates": list(gates)}],
        "revision": rules["revision"],
    }
    answer = mia.put(RULES, body)
    assert answer.status_code == 200, answer.content


def promote(api: Api, version: int = 1, **body: Any) -> tuple[int, dict[str, Any]]:
    """Promote to production unless told otherwise; returns the status and the answer."""
    answer = api.post(f"{DIGITS}/{version}/promote", body or {"stage": "Production"})
    return answer.status_code, json_of(answer)


def gate_now(api: Api, version: int = 1, target: str = "stage=Production") -> dict[str, Any]:
    """Return how the first gate of a target stands."""
    plan = json_of(api.get(f"{DIGITS}/{version}/plan?{target}"))
    first: dict[str, Any] = plan["gates"][0]
    return first


@pytest.fixture
def job(bob: Api, people: Personas) -> Api:
    """A running job of Bob's, with the token it was given."""
    make_machine("lab")
    make_tier("small")
    workload = place(made_job(bob))
    return Api(token_of(workload.pk, workload.epoch))


def reads_digits(people: Personas, *, number: int = 3) -> DatasetUse:
    """Let the job read a version of the dataset digits."""
    dataset, _ = Dataset.objects.get_or_create(
        project=people.vision, name="digits", deleted_at=None, defaults={"created_by": people.bob}
    )
    version = DataVersion.objects.create(
        dataset=dataset, number=number, state="ready", created_by=people.bob
    )
    return record_use(version=version, by=people.bob, workload=Workload.objects.get())


@pytest.mark.postgres
def test_a_version_goes_from_stage_to_stage_and_every_step_is_remembered(
    bob: Api, store: Store
) -> None:
    for _ in range(2):
        register(bob, store.run())
    assert promote(bob, 1, stage="Staging")[0] == 201
    assert promote(bob, 1, stage="Production")[1]["stage_before"] == "Staging"
    plan = json_of(bob.get(f"{DIGITS}/2/plan?stage=Production"))
    assert (plan["replaces"], plan["archives"], plan["may_promote"]) == (1, [1], True)
    assert plan["sentence"].endswith("replacing version 1. Version 1 moves to Archived.")
    status, move = promote(bob, 2, stage="Production", sequence=2)
    assert (status, move["sequence"], move["replaced"]) == (201, 3, 1)
    assert promote(bob, 2, alias="champion")[0] == 201
    moves = json_of(bob.get(f"{MODELS}/digits/history"))["items"]
    assert [(m["sequence"], m["target"], m["version"]) for m in moves] == [
        (5, "champion", 2),
        (4, "Archived", 1),
        (3, "Production", 2),
        (2, "Production", 1),
        (1, "Staging", 1),
    ]
    shown = json_of(bob.get(f"{MODELS}/digits"))
    assert shown["stages"] == {"Archived": 1, "Production": 2}
    assert shown["aliases"] == {"champion": 2}
    rows = ModelVersion.objects.order_by("version").values_list("current_stage", flat=True)
    assert list(rows) == ["Archived", "Production"]
    assert RegisteredModelAlias.objects.get().version == 2
    answer = bob.delete(f"{MODELS}/digits/aliases/champion")
    assert (answer.status_code, json_of(answer)["replaced"]) == (200, 2)
    assert not RegisteredModelAlias.objects.exists()
    assert bob.delete(f"{MODELS}/digits/aliases/champion").status_code == 404


def test_versions_stay_in_a_stage_only_when_asked(bob: Api, store: Store) -> None:
    for _ in range(4):
        register(bob, store.run())
    assert promote(bob, 1, stage="Production")[0] == 201
    assert promote(bob, 2, stage="Production", archive_replaced=False)[0] == 201
    plan = json_of(bob.get(f"{DIGITS}/3/plan?stage=Production"))
    assert plan["archives"] == [1, 2]
    assert plan["sentence"].endswith("Versions 1 and 2 move to Archived.")
    assert promote(bob, 3, stage="Production")[0] == 201
    # The first stage and the last are for any number, and an alias moves alone.
    assert promote(bob, 4, stage="Archived")[0] == 201
    assert promote(bob, 1, stage="Development")[0] == 201
    assert promote(bob, 2, stage="Development")[0] == 201
    assert promote(bob, 3, alias="champion")[0] == 201
    assert promote(bob, 2, alias="champion")[0] == 201
    rows = ModelVersion.objects.order_by("version").values_list("current_stage", flat=True)
    assert list(rows) == ["None", "None", "Production", "Archived"]


@pytest.mark.postgres
def test_what_mlflow_was_not_told_is_told_by_whoever_looks_next_and_by_a_sweep(
    bob: Api, people: Personas, store: Store
) -> None:
    for _ in range(2):
        register(bob, store.run())
    crashing = Api.of(people.bob)  # what follows its commits never happens
    assert promote(crashing, 1, alias="champion")[0] == 201
    assert promote(crashing, 1, stage="Staging")[0] == 201
    # The second looked, and told of the first.
    assert RegisteredModelAlias.objects.get().version == 1
    assert Move.objects.unsynced().count() == 1
    sync_mlflow()
    assert not Move.objects.unsynced().exists()
    assert ModelVersion.objects.get(version=1).current_stage == "Staging"
    assert promote(crashing, 2, alias="champion")[0] == 201
    assert RegisteredModelAlias.objects.get().version == 1
    assert crashing.delete(f"{MODELS}/digits/aliases/champion").status_code == 200
    assert RegisteredModelAlias.objects.get().version == 2
    sync_mlflow()
    assert not RegisteredModelAlias.objects.exists()
    # A version that MLflow has deleted meanwhile gets no alias, and holds nobody up.
    assert promote(crashing, 2, alias="champion")[0] == 201
    ModelVersion.objects.filter(version=2).update(current_stage="Deleted_Internal")
    sync_mlflow()
    assert not RegisteredModelAlias.objects.exists()
    assert not Move.objects.unsynced().exists()
    assert ModelVersion.objects.get(version=2).current_stage == "Deleted_Internal"


@pytest.mark.postgres
def test_what_was_planned_on_an_older_history_is_refused(bob: Api, store: Store) -> None:
    register(bob, store.run())
    plan = json_of(bob.get(f"{DIGITS}/1/plan?alias=champion"))
    assert promote(bob, 1, stage="Staging")[0] == 201
    status, problem = promote(bob, 1, alias="champion", sequence=plan["sequence"])
    assert (status, problem["code"]) == (409, "promotion_lost")
    assert promote(bob, 1, stage="Staging")[1]["code"] == "already_there"
    assert promote(bob, 1, stage="Nowhere")[1]["code"] == "no_such_stage"
    assert promote(bob, 1, alias="latest")[1]["code"] == "reserved_alias"
    assert promote(bob, 1, alias="v1")[1]["code"] == "reserved_alias"
    assert promote(bob, 1, alias="a", stage="Staging")[0] == 422
    assert promote(bob, 7, alias="a")[0] == 404


def test_a_signature_and_golden_predictions_are_asked_for(bob: Api, mia: Api, store: Store) -> None:
    register(bob, store.run(files=FILES | {"MLmodel": b"flavors: {sklearn: {}}\n"}))
    register(bob, store.run())
    put_gates(mia, {"kind": "signature"}, {"kind": "golden"})
    status, problem = promote(bob)
    assert (status, problem["code"]) == (409, "gate_closed")
    assert "no signature" in problem["detail"]
    assert "signature=" in problem["next_step"]
    assert gate_now(bob, 2)["passed"]
    assert "no recorded predictions" in promote(bob, 2)[1]["detail"]
    golden = {"inputs": [[0.5], [1.0]], "outputs": [3, 4], "absolute_tolerance": 0.001}
    recorded = json_of(bob.put(f"{DIGITS}/2/golden", golden))
    assert (recorded["golden"]["rows"], recorded["golden"]["absolute_tolerance"]) == (2, 0.001)
    assert json_of(bob.get(f"{DIGITS}/2/golden"))["outputs"] == [3, 4]
    assert bob.put(f"{DIGITS}/2/golden", {"inputs": [1], "outputs": []}).status_code == 422
    assert bob.get(f"{DIGITS}/1/golden").status_code == 404
    assert promote(bob, 2)[0] == 201


def evaluate(api: Api, version: int, value: float | None = None, **more: Any) -> dict[str, Any]:
    """Record an accuracy on digits:3."""
    body = {"metric": "accuracy", "dataset": "digits:3"} | more
    if value is not None:
        body["value"] = value
    answer = api.post(f"{DIGITS}/{version}/evaluations", body)
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = json_of(answer)
    return made


def test_only_a_job_that_read_the_named_data_measures_on_it(
    bob: Api, mia: Api, job: Api, people: Personas, store: Store
) -> None:
    register(bob, store.run())
    put_gates(mia, ACCURACY)
    evaluate(job, 1, 0.9)
    assert "did not read digits:3" in gate_now(bob)["sentence"]
    reads_digits(people, number=2)
    assert not gate_now(bob)["passed"]
    use = reads_digits(people)
    assert gate_now(bob)["passed"]
    # Another dataset of that name is other data.
    Dataset.objects.update(deleted_at=clock.now())
    assert "did not read digits:3" in gate_now(bob)["sentence"]
    Dataset.objects.update(deleted_at=None)
    assert promote(bob, 1)[0] == 201
    use.delete()
    register(bob, store.run())
    evaluate(job, 2, 0.95)
    assert promote(bob, 2)[1]["code"] == "gate_closed"


@pytest.mark.thorough
def test_only_what_a_job_measured_counts_and_it_is_compared_with_the_champion(
    bob: Api, mia: Api, job: Api, people: Personas, store: Store
) -> None:
    reads_digits(people)
    for _ in range(3):
        register(bob, store.run())
    put_gates(mia, ACCURACY | {"margin": 0.01})
    assert "No job has measured accuracy on digits:3" in gate_now(bob)["sentence"]
    assert evaluate(bob, 1, 0.99)["is_verified"] is False
    assert "was not reported by a job" in gate_now(bob)["sentence"]
    assert evaluate(job, 1, 0.9)["is_verified"] is True
    assert (
        "the stage Production has no current version to compare with" in gate_now(bob)["sentence"]
    )
    assert promote(bob, 1)[0] == 201
    evaluate(job, 2, 0.905)
    assert "0.905 against 0.9 of version 1" in promote(bob, 2)[1]["detail"]
    evaluate(job, 2, not_finite="nan")
    assert "is NaN for version 2" in gate_now(bob, 2)["sentence"]
    evaluate(job, 2, 0.92)
    assert promote(bob, 2)[0] == 201
    put_gates(mia, ACCURACY | {"metric": "loss", "higher_is_better": False})
    evaluate(job, 3, 0.2, metric="loss")
    assert "it is unknown for version 2" in gate_now(bob, 3)["sentence"]
    evaluate(job, 2, 0.2, metric="loss")
    assert gate_now(bob, 3)["passed"]
    put_gates(mia, ACCURACY | {"metric": "loss", "higher_is_better": False, "margin": -0.05})
    evaluate(job, 3, 0.26, metric="loss")
    assert not gate_now(bob, 3)["passed"]
    evaluate(job, 3, 0.24, metric="loss")
    assert "at most 0.05 worse" in gate_now(bob, 3)["sentence"]
    assert gate_now(bob, 3)["passed"]


def test_a_figure_may_come_from_a_run_of_the_project_alone(
    bob: Api, people: Personas, store: Store
) -> None:
    run_id = store.run(accuracy=0.75)
    register(bob, run_id)
    assert evaluate(bob, 1, run_id=run_id)["value"] == 0.75
    LatestMetric.objects.update(is_nan=True, value=0.0)
    shown = evaluate(bob, 1, run_id=run_id)
    assert (shown["value"], shown["note"]) == (None, "NaN")
    foreign = Store(store.root, people.other.pk).run(accuracy=1.0)
    body = {"metric": "accuracy", "dataset": "digits:3", "run_id": foreign}
    assert bob.post(f"{DIGITS}/1/evaluations", body).status_code == 422
    both = body | {"value": 1.0}
    assert bob.post(f"{DIGITS}/1/evaluations", both).status_code == 422
    for bad in (math.nan, math.inf):
        raw = str({"metric": "a", "dataset": "digits:3", "value": bad}).replace("'", '"')
        assert bob.post(f"{DIGITS}/1/evaluations", raw.encode()).status_code in (400, 422)


@pytest.mark.postgres
def test_approval_is_given_by_a_maintainer_who_is_neither_author_nor_asker(
    bob: Api, mia: Api, people: Personas, store: Store, job: Api
) -> None:
    alice = Api.of(people.alice)
    register(bob, store.run())
    register(mia, store.run())
    put_gates(mia, {"kind": "approval"})
    assert "Nobody has requested" in promote(bob)[1]["detail"]
    request = json_of(bob.post(f"{DIGITS}/1/requests", {"stage": "Production", "note": "please"}))
    again = bob.post(f"{DIGITS}/1/requests", {"stage": "Production"})
    assert json_of(again)["code"] == "asked_already"
    decision = f"{MODELS}/digits/requests/{request['id']}/decision"
    assert bob.post(decision, {"verdict": "approve"}).status_code == 403
    assert job.post(decision, {"verdict": "approve"}).status_code == 403
    assert "it is pending" in promote(mia)[1]["detail"]
    approved = json_of(mia.post(decision, {"verdict": "approve", "note": "fine"}))
    assert (approved["state"], approved["decided_by"]["email"]) == ("approved", "mia@example.org")
    assert json_of(alice.post(decision, {"verdict": "reject"}))["code"] == "request_decided"
    assert promote(bob)[0] == 201
    used = json_of(bob.get(f"{DIGITS}/1/requests"))[0]
    assert used["state"] == "used"
    # Approved once is promoted once.
    assert promote(bob, 1, stage="Staging")[0] == 201
    assert promote(bob)[1]["code"] == "gate_closed"
    # Who registered may not approve, whoever asks; nor may who asked.
    request = json_of(bob.post(f"{DIGITS}/2/requests", {"stage": "Production"}))
    own = mia.post(f"{MODELS}/digits/requests/{request['id']}/decision", {"verdict": "approve"})
    assert (own.status_code, json_of(own)["code"]) == (403, "own_work")
    withdrawn = f"{MODELS}/digits/requests/{request['id']}/decision"
    assert json_of(bob.post(withdrawn, {"verdict": "withdraw"}))["state"] == "withdrawn"
    request = json_of(alice.post(f"{DIGITS}/1/requests", {"stage": "Production"}))
    own = alice.post(f"{MODELS}/digits/requests/{request['id']}/decision", {"verdict": "approve"})
    assert json_of(own)["code"] == "own_work"
    rejected = f"{MODELS}/digits/requests/{request['id']}/decision"
    assert json_of(mia.post(rejected, {"verdict": "reject"}))["state"] == "rejected"


def test_gates_are_passed_by_a_maintainer_with_a_reason_that_is_kept(
    bob: Api, mia: Api, store: Store, job: Api
) -> None:
    register(bob, store.run())
    put_gates(mia, {"kind": "approval"}, target="champion")
    for alias in ("champion", "Champion", "CHAMPION"):
        assert promote(bob, 1, alias=alias)[1]["code"] == "gate_closed"
    reason = "the pager is ringing"
    refused = promote(bob, 1, alias="champion", override_reason=reason)
    assert (refused[0], refused[1]["code"]) == (403, "role_too_low")
    assert promote(job, 1, alias="champion", override_reason=reason)[0] == 403
    assert promote(mia, 1, alias="champion", override_reason="")[0] == 422
    status, move = promote(mia, 1, alias="champion", override_reason=reason)
    assert (status, move["override_reason"], move["gates"][0]["passed"]) == (201, reason, False)
    event = AuditEvent.objects.get(verb="model.override")
    assert event.actor == "mia@example.org"
    assert (event.after or {})["override_reason"] == reason
    assert bob.delete(f"{MODELS}/digits/aliases/champion").status_code == 403


def test_rules_change_in_one_line_and_strand_no_version(bob: Api, mia: Api, store: Store) -> None:
    register(bob, store.run())
    body = {"stages": ["Lab", "Live"], "gates": [], "revision": 0}
    assert bob.put(RULES, body).status_code == 403
    assert json_of(mia.put(RULES, body))["revision"] == 1
    assert json_of(mia.put(RULES, body))["code"] == "rules_changed"
    assert json_of(bob.get(f"{DIGITS}/1"))["stage"] == "Lab"
    assert promote(bob, 1, stage="Live")[0] == 201
    gone = mia.put(RULES, {"stages": ["Lab"], "revision": 1})
    assert (gone.status_code, json_of(gone)["code"]) == (422, "stage_in_use")
    many: list[dict[str, Any]] = [
        {"stages": ["A", "a"]},
        {"stages": []},
        {"stages": ["A"], "gates": [{"kind": "stage", "name": "B", "gates": []}]},
        {"stages": ["A"], "gates": [{"kind": "alias", "name": "b", "gates": [{"kind": "x"}]}]},
    ]
    for wrong in many:
        assert mia.put(RULES, {"revision": 1} | wrong).status_code == 422


def test_another_tenant_sees_nothing(bob: Api, people: Personas, store: Store) -> None:
    register(bob, store.run())
    charlie = Api.of(people.charlie)
    assert charlie.get(f"{DIGITS}/1").status_code == 404
    for path in ("models/digits", "models/digits/versions/1", "lineage?kind=version&id=digits/1"):
        assert charlie.get(f"projects/other/{path}").status_code == 404
    assert json_of(charlie.get("projects/other/models"))["items"] == []


@pytest.mark.postgres
def test_lineage_leads_from_data_to_versions_and_back(
    bob: Api, job: Api, people: Personas, store: Store
) -> None:
    workload = json_of(bob.get("projects/vision/jobs"))["items"][0]["workload"]["id"]
    run_id = store.run(workload=workload)
    store.reads(run_id, "digits", "abc123")
    register(bob, run_id)
    graph = json_of(bob.get(f"{DIGITS}/1/lineage"))
    kinds = {node["key"]: node["kind"] for node in graph["nodes"]}
    steps = {(kinds[edge["source"]], kinds[edge["target"]]) for edge in graph["edges"]}
    assert steps == {("job", "run"), ("dataset", "run"), ("run", "version")}
    for node in graph["nodes"]:
        around = json_of(bob.get(f"projects/vision/lineage?kind={node['kind']}&id={node['id']}"))
        assert {neighbour["key"] for neighbour in around["nodes"]} == set(kinds), node
    # A tag that names a stranger's job is not believed.
    liar = Store(store.root, people.other.pk)
    other = liar.run(workload=workload)
    made = Api.of(people.charlie).post(
        "projects/other/models/digits/versions", {"source": f"runs:/{other}/model"}
    )
    assert made.status_code == 201
    graph = json_of(Api.of(people.charlie).get("projects/other/models/digits/versions/1/lineage"))
    assert [node["kind"] for node in graph["nodes"]] == ["run", "version"]
    assert bob.get("projects/vision/lineage?kind=job&id=wl_nothing").status_code == 404
    assert bob.get("projects/vision/lineage?kind=endpoint&id=x").status_code == 404


@pytest.mark.thorough
def test_of_promotions_at_the_same_time_each_takes_its_own_place(portal: LivePortal) -> None:
    headers = {"Authorization": f"Bearer {portal.tokens['alice']}"}
    with httpx.Client(base_url=f"{portal.url}/api/v1", headers=headers, timeout=30) as client:
        created = client.post("/projects", json={"name": "Race"}).json()
        write_model(portal.data_dir / "artifacts", created["id"])
        project = created["slug"]
        root = f"/projects/{project}/models/digits/versions"
        source = {"source": SOURCE}
        made: list[int] = []
        together = threading.Barrier(6)

        def register_one() -> None:
            together.wait()
            made.append(client.post(root, json=source).json()["version"])

        def run_all(work: Any, *arguments: Any) -> None:
            threads = [threading.Thread(target=work, args=(*arguments, at)) for at in range(1, 7)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        run_all(lambda _at: register_one())
        assert sorted(made) == [1, 2, 3, 4, 5, 6]
        plan = client.get(f"{root}/1/plan", params={"stage": "Production"}).json()
        answers: list[httpx.Response] = []

        def promote_one(body: dict[str, Any], at: int) -> None:
            together.wait()
            answers.append(client.post(f"{root}/{at}/promote", json=body))

        run_all(promote_one, {"stage": "Production", "sequence": plan["sequence"]})
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5
        codes = {answer.json().get("code") for answer in answers}
        assert codes == {None, "promotion_lost"}
        answers.clear()
        run_all(promote_one, {"alias": "champion"})
        done = [answer.json()["version"] for answer in answers if answer.status_code == 201]
        moves = client.get(f"/projects/{project}/models/digits/history").json()["items"]
        assert [move["sequence"] for move in moves] == list(range(len(moves), 0, -1))
        assert len(moves) == 1 + len(done)
        model = client.get(f"/projects/{project}/models/digits").json()
        assert model["aliases"] == {"champion": moves[0]["version"]}
        assert {answer.status_code for answer in answers} <= {201, 409}
