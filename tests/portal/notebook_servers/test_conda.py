"""Notebook servers in named environments of conda."""

import json

import pytest

from portal.compute.models import Environment
from portal.compute.services.environments import name_of
from portal.notebooks.models import Server
from tests.personas import Api, Personas, json_of
from tests.portal.notebook_servers.servers import SERVERS, Desk

FILE = "channels: [conda-forge]\ndependencies: [python=3.12, jupyterlab, {pip: [humanize]}]\n"


@pytest.mark.postgres
def test_a_server_has_the_packages_of_conda_and_those_of_jupyterlab(
    desk: Desk, people: Personas
) -> None:
    bob = Api.of(people.bob)
    body = {"name": "trees", "requirements": FILE}
    assert bob.post("projects/vision/named-environments", body).status_code == 201
    quote = json_of(bob.post(f"{SERVERS}/quote", {"tier": "small", "environment": "trees"}))
    assert quote["packages"]["explanation"] == (
        "3 packages of the environment trees@1, and those of JupyterLab. Python 3.12 of conda."
    )
    made = desk.launch(environment="trees")
    assert made["environment_version"] == "trees@1"
    workload = Server.objects.get(pk=made["id"]).workload
    assert workload is not None
    assert workload.python == "", "the Python comes with the packages"
    environment = Environment.objects.get(digest=workload.environment)
    assert json.loads(environment.conda)["packages"] == ["python=3.12", "jupyterlab"]
    names = {name_of(line) for line in environment.requirements.splitlines()}
    assert {"humanize", "ipykernel", "jupyterhub"} <= names
    assert "jupyterlab" not in names, "conda has it"
