"""Endpoints that serve in a named environment of their project."""

import json

import pytest
from django.test import Client

from portal.accounts.models import User
from portal.compute.models import Environment, NamedEnvironment
from portal.compute.services.named_environments import (
    add_version,
    archive_named_environment,
    create_named_environment,
)
from portal.compute.services.version_packages import VersionPackages, version_packages
from portal.endpoints.models import Endpoint, Revision
from portal.workloads.models import Workload
from tests.personas import Personas, json_of
from tests.portal.endpoints.pages import ONE, browser_of, send, text_of
from tests.portal.endpoints.serving import Lab

ENVIRONMENT = "/p/vision/environments/trees"


def _create(people: Personas, by: User) -> NamedEnvironment:
    return create_named_environment(
        project=people.vision, by=by, name="trees", packages=_of("humanize==4.1.0")
    )


def _of(requirements: str) -> VersionPackages:
    return version_packages(requirements, python=None)


def _packages(revision: int) -> list[str]:
    replica = Workload.objects.get(name=f"digits-{revision}")
    return Environment.objects.get(digest=replica.environment).requirements.splitlines()


def test_a_revision_serves_in_the_version_it_was_created_with(lab: Lab, people: Personas) -> None:
    named = _create(people, people.bob)
    created = lab.create(environment="trees")
    assert created["revisions"][0]["environment_version"] == "trees@1"
    lab.settle()
    assert "humanize==4.1.0" in _packages(1)
    assert "mlflow" in _packages(1), "what the model server needs is added"
    add_version(named=named, by=people.bob, packages=_of("humanize==4.2.0"))
    browser: Client = browser_of(people.bob)
    page = text_of(browser.get(f"{ONE}/promote"))
    assert "trees@2 · 1 package · Python 3.11 · not built yet" in page
    assert '<option value="trees" selected>' in page
    form = {"model": "digits", "version": "2", "plan": "all_at_once", "bake_minutes": "0"}
    unknown = text_of(browser.post(f"{ONE}/promote", form | {"environment": "tree"}), 422)
    assert "This project has no environment named tree." in unknown
    send(browser, f"{ONE}/promote", **form, environment="trees")
    lab.settle()
    assert "humanize==4.2.0" in _packages(2)
    assert f'{ENVIRONMENT}?version=2">trees@2</a>' in text_of(browser.get(f"{ONE}/revisions"))
    assert "endpoint, revision 2" in text_of(browser.get(ENVIRONMENT))
    again = lab.api.post(
        "projects/vision/endpoints/digits/promote", {"revision": 1, "environment": "trees"}
    )
    assert (again.status_code, json_of(again)["field"]) == (422, "environment")


def test_an_environment_that_is_not_there_is_refused(lab: Lab, people: Personas) -> None:
    archive_named_environment(named=_create(people, people.bob))
    for name, code in (
        ("trees", "environment_archived"),
        ("tree", "no_such_environment"),
        ("installation", "no_such_environment"),
    ):
        body = {"name": "digits", "model": "digits", "version": "1", "environment": name}
        refused = json_of(lab.api.post("projects/vision/endpoints", body))
        assert (refused["status"], refused["code"]) == (422, code)
        assert refused["field"] == "environment"
    assert not Endpoint.objects.exists()
    assert not Revision.objects.exists()


@pytest.mark.postgres
def test_a_revision_serves_in_packages_of_conda(lab: Lab, people: Personas) -> None:
    text = "channels: [conda-forge]\ndependencies: [python=3.12, numpy, {pip: [humanize]}]\n"
    create_named_environment(project=people.vision, by=people.bob, name="trees", packages=_of(text))
    created = lab.create(environment="trees")
    assert created["revisions"][0]["environment_version"] == "trees@1"
    lab.settle()
    replica = Workload.objects.get(name="digits-1")
    environment = Environment.objects.get(digest=replica.environment)
    assert json.loads(environment.conda)["packages"] == ["python=3.12", "numpy"]
    lines = environment.requirements.splitlines()
    assert {"humanize", "mlflow", "uvloop"} <= {*lines}
    assert "numpy" not in lines, "conda has it"
    assert replica.python == "", "the Python comes with the packages"
