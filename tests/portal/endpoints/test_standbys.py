"""A revision that was replaced stays warm, within bounds that people see and can change."""

import pytest
from django.test import Client

from tests.personas import Personas
from tests.portal.endpoints.serving import Lab
from tests.portal.workloads.machines import make_tier, submit

pytestmark = pytest.mark.postgres

PRICE = 3_600_000_000


@pytest.mark.thorough
def test_promotes_in_a_row_keep_the_newest_replaced_revision_warm_and_no_other(lab: Lab) -> None:
    lab.serving()
    for version in ("2", "3", "4"):
        lab.promote(version, bake_s=0)
        lab.settle()
    states = {revision["number"]: revision["state"] for revision in lab.show()["revisions"]}
    assert (states[4], states[3]) == ("serving", "standby")
    with lab.later(minutes=2):
        lab.settle()
        assert lab.replicas(1) == lab.replicas(2) == []
        assert lab.show()["nano_usd_per_hour"] == 2 * PRICE


@pytest.mark.thorough
def test_how_long_is_a_setting_with_its_price(lab: Lab, people: Personas, client: Client) -> None:
    assert lab.serving(warm_minutes=30)["warm_minutes"] == 30
    client.force_login(people.bob)
    page = client.get("/p/vision/endpoints/digits/settings").content.decode()
    assert "stays warm for 30 minutes, at $3.60 an hour" in " ".join(page.split())
    lab.promote("2", bake_s=0)
    lab.settle()
    with lab.later(minutes=29):
        lab.settle()
        assert lab.revision(1)["state"] == "standby"
    changed = lab.api.patch("projects/vision/endpoints/digits", {"warm_minutes": 0})
    assert changed.status_code == 200, changed.content
    lab.settle()
    assert lab.revision(1)["state"] == "retired"
    lab.promote("3", bake_s=0)
    lab.settle()
    assert {revision["state"] for revision in lab.show()["revisions"]} == {"serving", "retired"}
    refused = lab.api.patch("projects/vision/endpoints/digits", {"warm_minutes": 1441})
    assert refused.status_code == 422


@pytest.mark.thorough
def test_a_warm_revision_gives_its_place_to_work_that_waits(lab: Lab, people: Personas) -> None:
    lab.serving()
    lab.promote("2", bake_s=0)
    lab.settle()
    never = submit(people.other, people.charlie, make_tier("never", cpus=16))
    with lab.later(seconds=6):
        lab.settle()
        assert lab.revision(1)["state"] == "standby", "its place alone would not be enough"
    fits = submit(people.other, people.charlie, make_tier("large", cpus=15), priority=1)
    with lab.later(seconds=12):
        lab.settle()
        assert lab.revision(1)["state"] == "retired"
        assert "Other work needed its place." in lab.revision(1)["reason"]
    with lab.later(minutes=2):
        lab.settle()
        assert lab.replicas(1) == []
    for workload in (never, fits):
        workload.refresh_from_db()
    assert (never.state, fits.state) == ("queued", "placed")
