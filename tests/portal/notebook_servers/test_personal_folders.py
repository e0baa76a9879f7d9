"""Each person's servers get a folder of that person alone; nothing else ever does."""

from typing import Any

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.core.errors import InvalidInput
from portal.notebooks.models import Server
from portal.notebooks.services.servers import start_server
from portal.notebooks.workload_sync import sync_all
from portal.workloads.specs import spec_from
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import SERVERS, Desk
from tests.portal.workloads.machines import Machine


@pytest.fixture(autouse=True)
def _commits(django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Any:
    """Workload changes are announced on commit, which never comes in a test."""
    with django_capture_on_commit_callbacks(execute=True):
        yield


def spec_of(desk: Desk, server: str) -> Any:
    """Place a server and return what its node is told to start."""
    workload = desk.place(server)
    desired = json_of(desk.machine.call("GET", "desired"))
    return next(task["spec"] for task in desired["tasks"] if task["workload_id"] == workload.pk)


def test_a_server_gets_the_folder_of_its_owner_alone(
    people: Personas, desk: Desk, machine: Machine
) -> None:
    project = people.vision.pk
    alices = Desk(Api.of(people.alice), machine)
    first = spec_of(desk, desk.launch("one")["id"])
    second = spec_of(desk, desk.launch("two")["id"])
    other = spec_of(alices, alices.launch("one")["id"])
    assert first["persistent_key"] == other["persistent_key"] == f"{project}/workspace"
    assert first["personal_key"] == second["personal_key"] == f"{project}/person-{people.bob.pk}"
    assert other["personal_key"] == f"{project}/person-{people.alice.pk}"


def test_a_server_that_starts_again_gets_the_same_folder(people: Personas, desk: Desk) -> None:
    server = desk.ready()
    before = Server.objects.get(pk=server).workload
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    # As a schedule starts it: nobody in particular does.
    start_server(server=Server.objects.get(pk=server))
    after = Server.objects.get(pk=server).workload
    assert before is not None
    assert after is not None
    assert before.pk != after.pk
    assert spec_of(desk, server)["personal_key"] == f"{people.vision.pk}/person-{people.bob.pk}"


@pytest.mark.parametrize(
    "changes",
    [
        {"persistent_key": "person-usr_01"},
        {"personal_key": "workspace"},
        {"personal_key": "person-"},
        {"personal_key": "person-../workspace"},
        {"personal_key": "person-a/b"},
        {"personal_key": "person-\u0430lice"},
        {"personal_key": "person-a\n"},
    ],
)
def test_no_other_key_leads_into_a_personal_folder(changes: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        spec_from(argv=("python", "train.py"), **changes)
