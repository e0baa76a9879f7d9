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
