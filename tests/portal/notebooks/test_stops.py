"""Stops of notebook servers as workloads: only their owner and maintainers may."""

import pytest

from portal.accounts.models import Membership
from portal.notebooks.wiring import NOTEBOOK
from portal.workloads.models import Workload
from portal.workloads.ports import register_kind
from slipway.schemas.accounts import Role
from tests.personas import Api, Personas, json_of, make_user


@pytest.mark.postgres
@pytest.mark.usefixtures("machine")
def test_a_colleague_cannot_stop_a_server_as_a_workload(people: Personas, bob: Api) -> None:
    register_kind(NOTEBOOK)
    carol = make_user("carol")
    Membership.objects.create(user=carol, project=people.vision, role=Role.CONTRIBUTOR)
    made = bob.post("projects/vision/notebooks/servers", {"name": "desk", "tier": "small"})
    assert made.status_code == 201, made.content
    server = json_of(made)["id"]
    workload = Workload.objects.get()
    stop = f"projects/vision/workloads/{workload.pk}/stop"
    refused = Api.of(carol).post(stop, {})
    assert (refused.status_code, json_of(refused)["code"]) == (403, "not_owner")
    own = Api.of(carol).post(f"projects/vision/notebooks/servers/{server}/stop")
    assert json_of(own)["detail"] == json_of(refused)["detail"]
    assert Workload.objects.get().state == workload.state
    allowed = Api.of(people.mia).post(stop, {})
    assert allowed.status_code == 200, allowed.content
    assert bob.post(stop, {}).status_code == 200, "stopping it again changes nothing"
