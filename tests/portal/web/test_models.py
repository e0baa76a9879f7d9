"""The pages of models: register a run's model, ask, approve, promote."""

import pytest
from django.test import Client
from pytest_django import Settings

from tests.personas import Api, Personas
from tests.portal.registry.store import Store
from tests.portal.registry.test_promoting import put_gates

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
    promote = f"{PAGE}/promote?stage=Production"
    assert "Request approval" in bob.get(promote).content.decode()
    assert bob.post(promote, {"do": "promote"}).status_code == 422
    assert bob.post(promote, {"do": "ask", "note": "please"}).status_code == 302
    page = mia.get(promote)
    request = page.context["plan"].request
    decide = f"/p/vision/models/digits/requests/{request.pk}/decide"
    assert mia.post(decide, {"verdict": "approve"}).status_code == 302
    sequence = bob.get(promote).context["plan"].sequence
    assert bob.post(promote, {"do": "promote", "sequence": sequence}).status_code == 302
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
