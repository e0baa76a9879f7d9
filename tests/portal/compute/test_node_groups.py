"""Node groups in the API: for administrators, and what members of their projects see."""

from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.compute.models import NodeGroup, Tier
from tests.personas import Api, Personas, json_of
from tests.security.problems import refusal

BODY: dict[str, Any] = {
    "name": "burst",
    "provisioner": "ec2",
    "settings": {"region": "eu-central-1", "launch_template": "lt-0123456789abcdef0"},
    "resources": {"cpu_millis": 4000, "memory_bytes": 2**34, "gpus": 1},
    "gpu_model": "A10G",
    "max_nodes": 3,
    "nano_usd_per_hour": 1_006_000_000,
    "projects": ["vision"],
}


def test_a_group_is_created_changed_and_removed(people: Personas) -> None:
    root = Api.of(people.root)
    made = json_of(root.post("node-groups", BODY))
    assert made["labels"] == {"node-group": "burst"}
    assert (made["min_nodes"], made["idle_grace_s"], made["projects"]) == (0, 300, ["vision"])
    assert made["cost"]["overhead_nano_usd"] == 0
    assert Tier.objects.exists()  # without one nothing could be submitted
    changed = json_of(root.patch("node-groups/burst", {"max_nodes": 5, "projects": None}))
    assert (changed["max_nodes"], changed["projects"]) == (5, None)
    event = AuditEvent.objects.get(verb="node_group.change")
    assert event.after == {"max_nodes": 5, "projects": None}
    assert root.delete("node-groups/burst").status_code == 204
    assert root.get("node-groups/burst").status_code == 404
    assert NodeGroup.objects.present().count() == 0


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"provisioner": "nor-such"}, "provisioner", "There is no provisioner nor-such"),
        ({"settings": {}}, "settings", "The setting region is required"),
        ({"settings": BODY["settings"] | {"ami": "x"}}, "settings", "has no setting ami"),
        (
            {"settings": BODY["settings"] | {"region": "eu;rm -rf"}},
            "settings",
            "it must be a region such as eu-central-1",
        ),
        ({"min_nodes": 4}, "min_nodes", "must be from 0 to max_nodes"),
        ({"labels": {"node-group": "x"}}, "labels", "is set by Slipway"),
        ({"name": "new"}, "name", "the address of the page"),
        ({"projects": ["nor-such"]}, "projects", "There is no project nor-such"),
    ],
)
def test_a_wrong_field_is_named_with_the_reason(
    people: Personas, changes: dict[str, Any], field: str, words: str
) -> None:
    problem = refusal(Api.of(people.root).post("node-groups", BODY | changes))
    assert problem.field == field
    assert words in problem.detail
    assert problem.next_step
    assert not NodeGroup.objects.exists()


def test_a_name_is_taken_once(people: Personas) -> None:
    root = Api.of(people.root)
    assert root.post("node-groups", BODY).status_code == 201
    assert refusal(root.post("node-groups", BODY)).code == "node_group_name_taken"


def test_members_see_groups_of_their_projects_without_settings_and_cost(people: Personas) -> None:
    root = Api.of(people.root)
    root.post("node-groups", BODY)
    root.post("node-groups", BODY | {"name": "theirs", "projects": ["other"]})
    bob = Api.of(people.bob)
    (seen,) = json_of(bob.get("node-groups"))["items"]
    assert (seen["name"], seen["settings"], seen["cost"]) == ("burst", {}, None)
    assert bob.get("node-groups/theirs").status_code == 404
    assert bob.get("node-groups/burst/machines").status_code == 403
    assert bob.patch("node-groups/burst", {"max_nodes": 9}).status_code == 403
    assert bob.post("node-groups", BODY | {"name": "mine"}).status_code == 403
