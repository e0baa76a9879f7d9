"""The pages of models: register a run's model, ask, approve, promote."""

import json

import pytest
from django.test import Client
from pytest_django import Settings

from portal.experiments.models import Tag
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import Store
from tests.portal.registry.test_promoting import put_gates
from tests.portal.web.reading import html_of, text_of

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
PAGE = "/p/vision/models/digits/versions/1"


def test_a_model_is_registered_approved_and_promoted_on_pages(
    people: Personas, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    bob, mia = Client(), Client()
    bob.force_login(people.bob)
    mia.force_login(people.mia)
    put_gates(Api.of(people.mia), {"kind": "approval"}, {"kind": "signature"})
    run = Store(folder, people.vision.pk).run(accuracy=0.9)
    form = {"name": "digits", "run": run, "path": "model"}
    assert bob.post("/p/vision/register-model", form).headers["Location"] == PAGE
    assert "serving_input_example.json" in bob.get(PAGE).content.decode()
    figure = {"metric": "auc", "dataset": "digits:1", "not_finite": "nan"}
    path = "projects/vision/models/digits/versions/1/evaluations"
    assert Api.of(people.bob).post(path, figure).status_code == 201
    assert "auc on digits:1 undefined" in text_of(bob.get(PAGE))
    promote = f"{PAGE}/promote?stage=Production"
    assert "Request approval" in bob.get(promote).content.decode()
    assert bob.post(promote, {"do": "promote"}).status_code == 422
    assert bob.post(promote, {"do": "ask", "note": "please"}).status_code == 302
    assert "Version 1 → Production" in text_of(mia.get("/p/vision/models"))
    assert "requested by Bob" in text_of(mia.get("/p/vision/models/digits"))
    page = mia.get(promote)
    request = page.context["plan"].request
    decide = f"/p/vision/models/digits/requests/{request.pk}/decide"
    assert mia.post(decide, {"verdict": "approve"}).status_code == 302
    sequence = bob.get(promote).context["plan"].sequence
    assert bob.post(promote, {"do": "promote", "sequence": sequence}).status_code == 302
    assert "Version 1 → Production" not in text_of(mia.get("/p/vision/models"))
    assert "Production: 1" in bob.get("/p/vision/models").content.decode()
    assert "Version 1" in bob.get("/p/vision/models/digits").content.decode()


def test_gates_open_with_what_is_active_and_are_not_removed_by_one_click(people: Personas) -> None:
    put_gates(Api.of(people.mia), {"kind": "approval"}, {"kind": "signature"})
    mia = Client()
    mia.force_login(people.mia)
    address = "/p/vision/registry-rules"
    opened = mia.get(address).context["gates"]
    assert (opened["name"].value(), opened["approval"].value()) == ("Production", True)
    assert mia.get(f"{address}?kind=stage&name=production").context["gates"]["signature"].value()
    revision = mia.get(address).context["rules"].revision
    emptied = {"kind": "stage", "name": "Production", "better": "higher", "revision": revision}
    question = mia.post(address, emptied | {"do": "gates"})
    assert question.status_code == 422
    assert "This removes active gates: approval, signature." in question.content.decode()
    assert len(mia.get(address).context["declared"][0].gates) == 2
    # A form that was opened before somebody else changed the rules does not overwrite theirs.
    put_gates(Api.of(people.mia), {"kind": "approval"}, {"kind": "golden"})
    late = mia.post(address, emptied | {"do": "gates", "remove": "approval, golden"})
    assert "Somebody else has changed the stages or gates" in late.content.decode()
    emptied["revision"] = mia.get(address).context["rules"].revision
    removed = mia.post(address, emptied | {"remove": "approval, golden"})
    assert removed.status_code == 302
    assert mia.get(address).context["declared"] == []


def test_logged_models_are_listed_on_the_run_and_registered_from_there(
    people: Personas, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{folder}"
    store, bob = Store(folder, people.vision.pk), Client()
    bob.force_login(people.bob)
    run = store.run()
    first, second = store.logs(run, "net", step=10), store.logs(run, "net", step=20)
    broken = store.logs(run, "broken", step=5, files={"MLmodel": b"- no mapping"})
    before_3 = [{"artifact_path": "old", "flavors": {"keras": {}}}, {"artifact_path": "../x"}, 7]
    Tag.objects.create(run_id=run, key="mlflow.log-model.history", value=json.dumps(before_3))
    page = bob.get(f"/p/vision/runs/{run}")
    models = [model for model, _ in page.context["logged_models"]]
    assert [model.source for model in models] == [
        f"models:/{second}",
        f"models:/{first}",
        f"models:/{broken}",
        f"runs:/{run}/old",
    ]
    assert (models[0].step, models[0].flavors, models[3].flavors) == (20, ["sklearn"], ["keras"])
    assert "Cannot be read: the MLmodel file is not a mapping." in text_of(page)
    assert "x: double → float64[-1, 10]" in text_of(page)
    form = bob.get(f"/p/vision/register-model?run={run}&model=models:/{first}").context["form"]
    assert (form["source"].value(), form["name"].value()) == (f"models:/{first}", "net")
    sent = {"name": "digits", "run": run, "source": f"models:/{first}"}
    assert bob.post("/p/vision/register-model", sent).headers["Location"] == PAGE
    page = bob.get(f"/p/vision/runs/{run}")
    assert [list(model.versions) for model, _ in page.context["logged_models"]] == [
        [],
        [("digits", 1)],
        [],
        [],
    ]
    listed = json_of(Api.of(people.vera).get(f"projects/vision/runs/{run}/models"))
    assert [(it["source"], it["state"], it["step"]) for it in listed] == [
        (f"models:/{second}", "ready", 20),
        (f"models:/{first}", "ready", 10),
        (f"models:/{broken}", "ready", 5),
        (f"runs:/{run}/old", "ready", None),
    ]
    assert listed[1]["registered"] == [{"model": "digits", "version": 1}]
    assert listed[1]["signature"]["inputs"][0]["name"] == "x"
    assert listed[2]["fault"] == "the MLmodel file is not a mapping"
    assert Api.of(people.charlie).get(f"projects/vision/runs/{run}/models").status_code == 404
    # The next run of the experiment suggests the model that this one became.
    form = bob.get(f"/p/vision/register-model?run={store.run()}").context["form"]
    assert (form["name"].value(), form["path"].value()) == ("digits", "model")
    assert 'href="/p/vision/new-endpoint?model=digits&amp;version=1"' in html_of(bob.get(PAGE))
    # The model of a run is not offered for another, nor to another project.
    assert bob.post("/p/vision/register-model", sent | {"run": store.run()}).status_code == 422
    charlie = Client()
    charlie.force_login(people.charlie)
    foreign = charlie.get(f"/p/{people.other.slug}/register-model?run={run}")
    assert "source" not in foreign.context["form"].fields
