"""Jobs with a framework, which forms a cluster over their ranks."""

import pytest

from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.training.jobs import CODE, made_job, submit, take_code
from tests.portal.workloads.machines import Machine


def test_a_node_is_told_of_the_framework_and_people_see_it(bob: Api, machine: Machine) -> None:
    job = made_job(bob, framework="ray", procs=2)
    assert job["framework"] == "ray"
    path = f"projects/vision/jobs/{job['workload']['id']}"
    assert json_of(bob.get(path))["framework"] == "ray"
    run_passes()
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert task["spec"]["framework"] == "ray"
    assert json_of(bob.post(f"{path}/clone", {}))["framework"] == "ray"
    assert json_of(bob.post(f"{path}/clone", {"framework": "dask"}))["framework"] == "dask"
    assert made_job(bob)["framework"] is None


@pytest.mark.parametrize("framework", ["spark", "", "Ray"])
def test_an_unknown_framework_is_refused_by_name(
    bob: Api, machine: Machine, framework: str
) -> None:
    take_code(bob)
    answer = submit(bob, framework=framework)
    assert answer.status_code == 422
    problem = json_of(answer)
    assert "framework" in str(problem)
    assert "ray, dask or parameter_server" in str(problem)


def test_a_strategy_and_a_framework_are_refused_together(bob: Api, machine: Machine) -> None:
    take_code(bob)
    for path in ("jobs", "jobs/quote"):
        body = {"script": "train.py", "tier": "small", "strategy": "ddp", "framework": "dask"}
        body["snapshot"] = take_code(bob)
        problem = json_of(bob.post(f"projects/vision/{path}", body))
        assert (problem["code"], problem["field"]) == ("strategy_with_framework", "strategy")
        assert "Dask" in problem["detail"]


def test_parameter_servers_need_three_ranks(bob: Api, machine: Machine) -> None:
    problem = json_of(submit(bob, framework="parameter_server", procs=2))
    assert (problem["code"], problem["field"]) == ("too_few_ranks", "framework")
    assert "This job has 2" in problem["detail"]
    assert made_job(bob, framework="parameter_server", procs=3)["framework"] == "parameter_server"


def test_a_notebook_runs_once_on_a_cluster_of_many_ranks(bob: Api, machine: Machine) -> None:
    digest = take_code(bob, CODE | {"explore.ipynb": b"{}"})
    refused = submit(bob, script="explore.ipynb", snapshot=digest, procs=2)
    assert json_of(refused)["code"] == "notebook_on_many_ranks"
    accepted = submit(bob, script="explore.ipynb", snapshot=digest, procs=2, framework="ray")
    assert accepted.status_code == 201


def test_the_form_has_the_framework_and_the_page_shows_it(
    people: Personas, bob: Api, machine: Machine
) -> None:
    key = made_job(bob, framework="ray")["workload"]["id"]
    browser = browser_of(people.bob)
    page = browser.get(f"/p/vision/jobs/{key}").content.decode()
    assert "Ray: the script runs on rank 0" in page
    form = browser.get(f"/p/vision/jobs/new?from={key}").content.decode()
    assert '<option value="ray" selected>Ray</option>' in form
