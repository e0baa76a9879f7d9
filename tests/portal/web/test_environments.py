"""Pages of named environments, and the picker in the forms of jobs and notebook servers."""

from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.accounts.models import User
from portal.compute.models import NamedEnvironment
from portal.compute.services.environments import default_python
from portal.compute.services.named_environments import add_version, create_named_environment
from portal.compute.services.version_packages import version_packages
from portal.notebooks.models import Server
from portal.notebooks.services.servers import stop_server
from portal.training.models import Job
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import code, notebook, send
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import take_code, use_store
from tests.portal.web.reading import fault_of, html_of, text_of
from tests.portal.workloads.machines import Machine, make_machine, make_tier

LIST = "/p/vision/environments"
MOST_QUERIES = 20


@pytest.fixture(autouse=True)
def machine(people: Personas, settings: Settings, tmp_path: Path) -> Machine:
    """A machine with two places of the tier small."""
    use_store(settings, tmp_path)
    made = make_machine("lab-1", cpus=2, gib=8)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


def _create(people: Personas, by: User, name: str = "trees") -> NamedEnvironment:
    return create_named_environment(
        project=people.vision,
        by=by,
        name=name,
        packages=version_packages("humanize", python=None),
        description="*Fast*",
    )


def test_an_environment_is_created_versioned_and_made_the_default(
    people: Personas, browse: Browse
) -> None:
    bob, mia = browse(people.bob), browse(people.mia)
    assert "No environments yet" in text_of(bob.get(LIST))
    form = {"name": "trees", "requirements": "humanize\n../x.whl", "description": "*Fast*"}
    refused = bob.post("/p/vision/new-environment", form)
    assert refused.status_code == 422
    assert "Line 2 of the requirements" in fault_of(refused, "requirements")
    made = bob.post("/p/vision/new-environment", form | {"requirements": "Humanize"}, follow=True)
    assert "Environment trees created." in text_of(made)
    assert "<em>Fast</em>" in html_of(made)
    assert "No node has built this version for the project yet." in text_of(made)
    same = bob.post(f"{LIST}/trees/version", {"requirements": "humanize"})
    assert "has these packages already" in fault_of(same, "requirements")
    added = bob.post(f"{LIST}/trees/version", {"requirements": "humanize\nsix"}, follow=True)
    assert "Version 2 of trees created." in text_of(added)
    assert "Make default" not in text_of(added)
    default = mia.post("/p/vision/default-environment", {"environment": "trees"}, follow=True)
    assert "packages run in trees" in text_of(default)
    question = bob.get(f"{LIST}/trees/archive")
    assert "New jobs, notebook servers and revisions of endpoints cannot use it." in text_of(
        question
    )
    kept = bob.post(f"{LIST}/trees/archive", follow=True)
    assert "is the default environment of this project" in text_of(kept)
    mia.post("/p/vision/default-environment", {"environment": ""})
    assert "archived" in text_of(bob.post(f"{LIST}/trees/archive", follow=True))
    assert "trees" in text_of(bob.get(f"{LIST}?show=archived"))
    assert "No environments yet" in text_of(bob.get(LIST))
    assert "Environment trees restored." in text_of(bob.post(f"{LIST}/trees/restore", follow=True))
    reader = browse(people.vera)
    assert "New version" not in text_of(reader.get(f"{LIST}/trees"))
    assert browse(people.charlie).get(f"{LIST}/trees").status_code == 404


def test_pages_offer_the_pythons_that_nodes_have(people: Personas, browse: Browse) -> None:
    make_machine("newer", pythons=("3.11", "3.13"))
    bob = browse(people.bob)
    node = text_of(browse(people.root).get("/settings/nodes/newer"))
    assert "Python 3.11, 3.13" in node
    digest = take_code(people.vision, people.bob)
    for address in ("/p/vision/jobs/new", "/p/vision/sweeps/new"):
        page = html_of(bob.get(address))
        assert '<option value="" selected>Automatic: files in the code, then 3.11</option>' in page
        assert '<option value="3.13">3.13</option>' in page
    fields = {
        "snapshot": digest,
        "script": "train.py",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
        "python": "3.13",
    }
    quote = text_of(bob.post("/p/vision/jobs/quote", fields))
    assert "Python 3.13 of the request. Python: 3.13" in quote
    refused = bob.post("/p/vision/jobs/new", fields | {"python": "3.14"})
    assert "nodes have 3.11, 3.13." in fault_of(refused, "python")
    made = bob.post("/p/vision/jobs/new", fields, follow=True)
    assert "· Python 3.13" in text_of(made)
    clone = html_of(bob.get(f"/p/vision/jobs/new?from={Job.objects.latest('pk').pk}"))
    assert '<option value="3.13" selected>3.13</option>' in clone
    # An environment has the Python of the version before, unless another one is chosen.
    form = {"name": "trees", "requirements": "humanize", "python": "3.13"}
    assert "Python 3.13" in text_of(bob.post("/p/vision/new-environment", form, follow=True))
    assert '<option value="3.13" selected>' in html_of(bob.get(f"{LIST}/trees/version"))
    changed = {"requirements": "humanize", "python": "3.11"}
    assert bob.post(f"{LIST}/trees/version", changed).status_code == 302
    lacking = bob.post("/p/vision/new-environment", form | {"name": "x", "python": "3.12"})
    assert "No node has Python 3.12" in fault_of(lacking, "python")


def test_a_job_chooses_an_environment_and_its_page_shows_build_and_users(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    bob = browse(people.bob)
    named = _create(people, people.bob)
    digest = take_code(people.vision, people.bob)
    page = html_of(bob.get("/p/vision/jobs/new?environment=trees"))
    assert "trees@1 · 1 package · Python 3.11 · not built yet" in page
    assert '<option value="trees" selected>' in page
    assert "Automatic: files in the code, then that of the installation" in page
    fields = {
        "snapshot": digest,
        "script": "train.py",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
        "environment": "trees",
    }
    quote = text_of(bob.post("/p/vision/jobs/quote", fields))
    assert "1 package of the environment trees@1" in quote
    unknown = bob.post("/p/vision/jobs/new", fields | {"environment": "tree"})
    assert "no environment named tree" in fault_of(unknown, "environment")
    assert bob.post("/p/vision/jobs/new", fields).status_code == 302
    job = Job.objects.select_related("workload").latest("pk")
    assert str(job.environment_version) == "trees@1"
    run_passes()
    report = {"state": "ready", "log_offset": 0, "log": "Collecting <b>\n", "size_bytes": 2048}
    report["locked"] = "humanize==4.1.0\n"
    machine.call("POST", f"environments/{job.workload.environment}/reports", report)
    page = html_of(bob.get(f"{LIST}/trees"))
    assert "Collecting &lt;b&gt;" in page
    assert "humanize==4.1.0" in page
    assert f"/p/vision/jobs/{job.pk}" in page
    assert "lab-1" in page
    job_page = bob.get(f"/p/vision/jobs/{job.pk}")
    assert "trees@1" in text_of(job_page)
    assert "built" in text_of(bob.get(LIST))
    add_version(named=named, by=people.bob, packages=version_packages("six", python=None))
    clone = html_of(bob.get(f"/p/vision/jobs/new?from={job.pk}"))
    assert '<option value="trees@1" selected>' in clone
    with CaptureQueriesContext(connection) as queries:
        bob.get(f"{LIST}/trees?version=1")
    assert len(queries) <= MOST_QUERIES
    _create(people, people.bob, "boosting")
    with CaptureQueriesContext(connection) as queries:
        bob.get(LIST)
    assert len(queries) <= MOST_QUERIES


def test_a_notebook_server_keeps_the_version_it_was_launched_in(
    people: Personas, browse: Browse
) -> None:
    named = _create(people, people.bob)
    page = html_of(browse(people.bob).get("/p/vision/notebooks/new"))
    assert "trees@1 · 1 package · Python 3.11 · not built yet" in page
    assert "Default: that of the installation" in page
    bob = Api.of(people.bob)
    body = {"name": "desk", "environment": "trees"}
    answer = bob.post("projects/vision/notebooks/servers/quote", body)
    assert json_of(answer)["packages"]["explanation"] == (
        "1 package of the environment trees@1, and those of JupyterLab."
    )
    server = json_of(bob.post("projects/vision/notebooks/servers", body))
    assert server["environment_version"] == "trees@1"
    assert "desk" in text_of(browse(people.vera).get(f"{LIST}/trees"))
    at = f"projects/vision/notebooks/servers/{server['id']}"
    runs = bob.patch(at, {"environment": "installation"})
    assert (runs.status_code, json_of(runs)["field"]) == (409, "environment")
    stop_server(server=Server.objects.get(pk=server["id"]))
    add_version(named=named, by=people.bob, packages=version_packages("six", python=None))
    form = html_of(browse(people.bob).get(f"/p/vision/notebooks/servers/{server['id']}/edit"))
    assert "Unchanged: trees@1" in form
    assert json_of(bob.patch(at, {"environment": "trees"}))["environment_version"] == "trees@2"
    assert json_of(bob.patch(at, {"environment": "installation"}))["environment_version"] is None
    bad = bob.post("projects/vision/notebooks/servers", {"name": "two", "environment": "tree"})
    assert (bad.status_code, json_of(bad)["field"]) == (422, "environment")


def test_a_notebook_runs_as_a_job_in_an_environment(people: Personas, browse: Browse) -> None:
    _create(people, people.bob)
    saved = json_of(send(Api.of(people.bob), "a/churn.ipynb", notebook(code("print(1)"))))
    bob, at = browse(people.bob), f"/p/vision/notebooks/files/{saved['id']}"
    page = html_of(bob.get(f"{at}/run"))
    assert "trees@1 · 1 package · Python 3.11 · not built yet" in page
    quote = text_of(bob.post(f"{at}/quote", {"tier": "small", "environment": "trees"}))
    assert "1 package of the environment trees@1" in quote
    fields = {"tier": "small", "params": ""}
    unknown = bob.post(f"{at}/run", fields | {"environment": "tree"})
    assert "no environment named tree" in fault_of(unknown, "environment")
    assert bob.post(f"{at}/run", fields | {"environment": "trees"}).status_code == 302
    assert str(Job.objects.latest("pk").environment_version) == "trees@1"
    # Without one it is that of the installation, which has papermill: the default may lack it.
    NamedEnvironment.objects.update(is_default=True)
    assert bob.post(f"{at}/run", fields).status_code == 302
    assert Job.objects.latest("pk").environment_version is None


def test_an_environment_of_conda_is_made_from_an_uploaded_file(
    people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    text = "channels: [conda-forge]\ndependencies: [python, numpy >=2]\n"
    form = {"name": "trees", "requirements": "", "python": default_python(), "description": ""}
    empty = bob.post("/p/vision/new-environment", form)
    assert "or choose a file" in fault_of(empty, "requirements")
    file = SimpleUploadedFile("environment.yml", b"\xff")
    assert "not UTF-8" in fault_of(
        bob.post("/p/vision/new-environment", form | {"file": file}), "file"
    )
    file = SimpleUploadedFile("environment.yml", text.encode())
    page = text_of(bob.post("/p/vision/new-environment", form | {"file": file}, follow=True))
    assert "Environment trees created." in page
    assert "Channels of conda https://conda.anaconda.org/conda-forge" in page
    assert "That of conda, known once it is built." in page
    assert "version 1, conda" in text_of(bob.get(LIST))
    assert "trees@1 · 2 packages · Python of conda" in text_of(bob.get("/p/vision/notebooks/new"))
    start = html_of(bob.get(f"{LIST}/trees/version"))
    assert "- numpy &gt;=2" in start
    chosen = {"requirements": text, "python": "3.13"}
    refused = bob.post(f"{LIST}/trees/version", chosen)
    assert "comes from conda" in fault_of(refused, "python")
    changed = chosen | {"python": default_python(), "requirements": text.replace("numpy", "scipy")}
    added = bob.post(f"{LIST}/trees/version", changed, follow=True)
    assert "Version 2 of trees created." in text_of(added)
