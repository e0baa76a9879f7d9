"""Workspace files whose node is away or removed: who has them, since when, and what to do."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.accounts.models import User
from portal.compute.lifecycle import NodeState
from portal.compute.models import Node
from portal.core import clock
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import Desk
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import Machine, make_machine

FILES = "projects/vision/workspace-files"
PAGE = "/p/vision/notebooks/workspace"


@pytest.fixture(autouse=True)
def _commits(django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Any:
    """Workload changes are announced on commit, which never comes in a test."""
    with django_capture_on_commit_callbacks(execute=True):
        yield


def page_of(person: User, query: str = "") -> str:
    browser = Client(headers={"Accept": "text/html"})
    browser.force_login(person)
    return text_of(browser.get(f"{PAGE}{query}"))


def test_a_node_that_is_away_is_named_with_the_time_and_the_next_step(
    people: Personas, desk: Desk, machine: Machine
) -> None:
    desk.place(desk.launch("one")["id"])
    last = clock.now()
    with clock.frozen(last + timedelta(minutes=10)):
        for refused in (
            desk.api.get(FILES),
            desk.api.get(f"{FILES}/content?path=a.txt"),
            desk.api.patch(FILES, {"path": "a", "target": "b", "target_area": "personal"}),
        ):
            answer = json_of(refused)
            assert (refused.status_code, answer["code"]) == (503, "node_unreachable")
            assert "The node lab has sent no heartbeat since" in answer["detail"]
            assert f"{last:%Y-%m-%d %H:}" in answer["detail"]
            assert "Ask an administrator to start lab or its node agent" in answer["next_step"]
        shown = page_of(people.bob)
        assert "on the node lab" in shown
        assert "The node lab has sent no heartbeat since" in shown
        assert "Ask an administrator to start lab or its node agent" in shown
        assert "Upload files" not in shown


def test_of_several_nodes_the_one_that_holds_the_files_is_named(
    people: Personas, desk: Desk, machine: Machine
) -> None:
    desk.place(desk.launch("one")["id"])
    began = clock.now()
    with clock.frozen(began + timedelta(minutes=10)):
        attic = make_machine("attic")
        desk.place(desk.launch("two")["id"])
    with clock.frozen(began + timedelta(minutes=20)):
        machine.beat()
        answer = json_of(desk.api.get(FILES))
        assert "The node attic has sent no heartbeat" in answer["detail"]
        assert "Other files of the project are on lab: choose that node." in answer["next_step"]
        shown = page_of(people.bob)
        assert "These files are on the disk of attic." in shown
        assert "Each of the 2 nodes has files of its own" in shown
        assert "attic (away)" in shown
        assert "Show files on lab" in shown
        # Alice has run no server there: her personal folder is on no node.
        alice = Api.of(people.alice)
        nothing = alice.get(f"{FILES}?area=personal&node=attic")
        assert json_of(nothing)["code"] == "no_workspace"
        missing = desk.api.get(f"{FILES}?node=cellar")
        assert (missing.status_code, json_of(missing)["code"]) == (404, "not_found")
    Node.objects.filter(pk__in=[machine.node.pk, attic.node.pk]).update(state=NodeState.REMOVED)
    removed = json_of(desk.api.get(FILES))
    assert removed["code"] == "workspace_removed"
    assert "The node attic, which holds these files, was removed" in removed["detail"]
    assert "The node attic, which holds these files, was removed" in page_of(people.bob)
