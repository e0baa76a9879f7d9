"""Limits of the registry: an answer says how much of it is left out."""

import json
import uuid

import pytest

from portal.api.v1 import model_serializers
from portal.experiments.models import Input
from portal.registry import catalog
from portal.registry import lineage as registry_lineage
from portal.registry.models import PromotionRequest
from portal.web.registry.views import versions as model_versions
from tests.personas import Api, Personas, json_of, whole_list
from tests.portal.endpoints.pages import browser_of
from tests.portal.registry.store import FILES, Store
from tests.portal.registry.test_registering import MODELS, register

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]
DIGITS = f"{MODELS}/digits/versions"
PAGE = "/p/vision/models/digits/versions/1"


def test_a_wide_signature_keeps_all_columns_and_whole_names(bob: Api, store: Store) -> None:
    long = ["n" * 200 + "-a", "n" * 200 + "-b"]
    inputs = [{"name": name, "type": "long"} for name in [*long, *map(str, range(6_000))]]
    flavors = ", ".join(f"flavor{n}: {{}}" for n in range(60))
    text = json.dumps(inputs, separators=(",", ":"))
    mlmodel = f"flavors: {{{flavors}}}\nsignature:\n  inputs: '{text}'\n"
    run_id = store.run(files=FILES | {"MLmodel": mlmodel.encode()})
    made = register(bob, run_id)
    assert made["fault"] is None
    assert [column["name"] for column in made["signature"]["inputs"]] == [
        column["name"] for column in inputs
    ]
    assert len(made["flavors"]) == 60


def test_evaluations_that_are_left_out_are_counted(
    bob: Api, people: Personas, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_serializers, "_MOST_EVALUATIONS", 2)
    monkeypatch.setattr(model_versions, "_EVALUATIONS_SHOWN", 1)
    monkeypatch.setattr(model_versions, "_FILES_SHOWN", 1)
    register(bob, store.run())
    for value in (0.1, 0.2, 0.3):
        figure = {"metric": "accuracy", "dataset": "digits:1", "value": value}
        assert bob.post(f"{DIGITS}/1/evaluations", figure).status_code == 201
    version = json_of(bob.get(f"{DIGITS}/1"))
    assert (len(version["evaluations"]), version["evaluations_left_out"]) == (2, 1)
    page = browser_of(people.bob).get(PAGE).content.decode()
    assert "2 more figures not shown here." in page
    assert f"{len(FILES) - 1} more files not shown here." in page


def test_lineage_says_how_much_is_left_out(
    bob: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [store.run() for _ in range(3)]
    store.reads(runs[0], "digits", "abc123")
    read = Input.objects.get()
    for run_id in runs[1:]:
        Input.objects.create(
            input_uuid=uuid.uuid4().hex,
            source_type="DATASET",
            source_id=read.source_id,
            destination_type="RUN",
            destination_id=run_id,
            step=0,
        )
    for run_id in runs:
        register(bob, run_id)
    around = "projects/vision/lineage?kind=dataset&id=digits@abc123"
    graph = json_of(bob.get(around))
    assert graph["left_out"] == 0
    monkeypatch.setattr(registry_lineage, "_MOST_RUNS", 2)
    graph = json_of(bob.get(around))
    assert len([node for node in graph["nodes"] if node["kind"] == "run"]) == 2
    assert graph["left_out"] == 1
    monkeypatch.setattr(catalog, "MAX_LIMIT", 1)
    assert json_of(bob.get(around))["left_out"] == 2


def test_every_request_about_a_version_is_listed(bob: Api, people: Personas, store: Store) -> None:
    register(bob, store.run())
    created = json_of(bob.post(f"{DIGITS}/1/requests", {"stage": "Production"}))
    request = PromotionRequest.objects.get(pk=created["id"])
    PromotionRequest.objects.bulk_create(
        PromotionRequest(
            record=request.record,
            kind=request.kind,
            target=request.target,
            requested_by=request.requested_by,
            state="withdrawn",
        )
        for _ in range(205)
    )
    assert len(whole_list(bob, f"{DIGITS}/1/requests")) == 206
    page = browser_of(people.bob).get(PAGE).content.decode()
    shown = model_versions._REQUESTS_SHOWN
    assert f"{206 - shown} more requests not shown here." in page
