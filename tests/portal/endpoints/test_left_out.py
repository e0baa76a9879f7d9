"""Limits of lists of endpoints: living replicas are never left out, others are counted."""

import pytest

from portal.api.v1 import endpoint_serializers
from portal.endpoints.models import Replica
from portal.endpoints.services import queries
from portal.web.endpoints.views import pages as endpoint_pages
from portal.web.monitoring.views import pages as monitoring_pages
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of, text_of
from tests.portal.endpoints.serving import GatewayClient, Lab

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]
AT = "projects/vision/endpoints/digits"


@pytest.mark.thorough
def test_a_living_replica_is_listed_however_many_ended_after_it(
    lab: Lab, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    living = Replica.objects.alive().get()
    for number in range(3):
        Replica.objects.create(
            id=f"{living.pk[:4]}7ZZZZZZZZZZZZZZZZZZZZZZZZ{number}",
            endpoint=living.endpoint,
            revision=living.revision,
            state="stopped",
        )
    monkeypatch.setattr(queries, "_SHOWN_REPLICAS", 2)
    monkeypatch.setattr(endpoint_pages, "ENDED_SHOWN", 1)
    listed = json_of(Api.of(people.bob).get(f"{AT}/replicas"))
    assert living.pk in [replica["id"] for replica in listed]
    page = text_of(browser_of(people.bob).get(ONE))
    assert "2 more replicas that ended not shown here." in page


@pytest.mark.thorough
def test_revisions_that_are_left_out_are_counted(
    lab: Lab, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    api = Api.of(people.bob)
    assert json_of(api.get(AT))["revisions_left_out"] == 0
    revision = Replica.objects.alive().get().revision
    fields = {
        field.attname: getattr(revision, field.attname) for field in revision._meta.concrete_fields
    }
    for number in (2, 3):
        changes = {"id": f"rev_7ZZZZZZZZZZZZZZZZZZZZZZZZ{number}", "number": number}
        type(revision).objects.create(**fields | changes | {"state": "retired", "weight": 0})
    monkeypatch.setattr(queries, "_SHOWN_REVISIONS", 1)
    shown = json_of(api.get(AT))
    assert (len(shown["revisions"]), shown["revisions_left_out"]) == (2, 1)
    page = text_of(browser_of(people.bob).get(ONE))
    assert "1 more earlier revision not shown here." in page


@pytest.mark.thorough
def test_incidents_that_are_left_out_are_counted(
    lab: Lab, gateway: GatewayClient, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    endpoint_id, revision_id = lab.ids(1)
    latency = {"counts": [0] * 22, "sum_ms": 0}
    counts = {"answered": 9, "fallback": 2, "captured": 6, "uncaptured": 3}
    revision = {"revision_id": revision_id, "latency": latency} | counts
    gateway.report(endpoints=[{"endpoint_id": endpoint_id, "revisions": [revision]}])
    assert json_of(Api.of(people.bob).get(AT))["incidents_left_out"] == 0
    monkeypatch.setattr(endpoint_serializers, "_MOST_INCIDENTS", 1)
    monkeypatch.setattr(endpoint_pages, "INCIDENTS_SHOWN", 1)
    monkeypatch.setattr(monitoring_pages, "_INCIDENTS", 1)
    shown = json_of(Api.of(people.bob).get(AT))
    assert (len(shown["incidents"]), shown["incidents_left_out"]) == (1, 1)
    for page in (ONE, f"{ONE}/monitoring"):
        assert "1 more incident of the last hour" in text_of(browser_of(people.bob).get(page))


def test_events_of_an_endpoint_that_are_left_out_are_counted(
    lab: Lab, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    assert "more event" not in text_of(browser_of(people.bob).get(ONE))
    monkeypatch.setattr(endpoint_pages, "EVENTS_SHOWN", 1)
    page = text_of(browser_of(people.bob).get(ONE))
    words = (
        "more events not shown here: <code>slipway endpoint events digits --project vision</code>"
    )
    assert words in page


def test_keys_beyond_the_first_are_counted(
    lab: Lab, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.serving()
    for number in range(3):
        assert lab.api.post(f"{AT}/keys", {"name": f"key-{number}"}).status_code == 201
    monkeypatch.setattr(endpoint_pages, "KEYS_SHOWN", 1)
    page = text_of(browser_of(people.bob).get(f"{ONE}/keys"))
    assert "<code>slipway endpoint keys list digits --project vision</code>" in page


@pytest.mark.thorough
def test_every_revision_can_be_chosen_for_monitoring(lab: Lab, people: Personas) -> None:
    lab.serving()
    revision = Replica.objects.alive().get().revision
    fields = {
        field.attname: getattr(revision, field.attname) for field in revision._meta.concrete_fields
    }
    for number in range(2, 24):
        changes = {"id": f"rev_7ZZZZZZZZZZZZZZZZZZZZZZZ{number:02}", "number": number}
        type(revision).objects.create(**fields | changes | {"state": "retired", "weight": 0})
    page = text_of(browser_of(people.bob).get(f"{ONE}/monitoring"))
    assert '<option value="1">1</option>' in page
    assert '<option value="23">23</option>' in page
