"""Jobs and notebook servers of a project that keeps its tasks off the network."""

import pytest

from slipway.schemas.agent import IsolationFacts
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import CODE, made_job, submit, take_code
from tests.portal.workloads.machines import Machine, make_machine, make_tier

pytestmark = pytest.mark.postgres


@pytest.fixture
def _confined(people: Personas) -> None:
    answer = Api.of(people.alice).patch("projects/vision", {"network": "platform"})
    assert answer.status_code == 200


@pytest.mark.usefixtures("_confined")
def test_what_no_node_can_enforce_is_refused_with_a_next_step(bob: Api) -> None:
    users = IsolationFacts(backend="process", level="users", detail="No user namespaces.")
    make_machine("weak", isolation=[users])
    make_tier("small")
    take_code(bob)
    problem = json_of(submit(bob))
    assert (problem["status"], problem["code"]) == (422, "network_rule_not_enforced")
    assert "project vision is platform" in problem["detail"]
    assert "administrator" in problem["next_step"]
    body = {"script": "train.py", "snapshot": take_code(bob, CODE), "tier": "small"}
    quote = json_of(bob.post("projects/vision/jobs/quote", body))
    assert quote["can_ever_run"] is False
    assert "no node can enforce it" in quote["explanation"]
    server = json_of(
        bob.post("projects/vision/notebooks/servers", {"name": "lab", "tier": "small"})
    )
    assert server["code"] == "network_rule_not_enforced"


@pytest.mark.usefixtures("_confined")
def test_a_job_on_several_nodes_needs_the_network(bob: Api, machine: Machine) -> None:
    take_code(bob)
    problem = json_of(submit(bob, nodes=2))
    assert (problem["status"], problem["code"]) == (422, "network_rule_one_node")
    assert problem["field"] == "nodes"
    assert "more processes on one node" in problem["next_step"]
    assert made_job(bob, procs=2)["workload"]["network"] == "platform"
