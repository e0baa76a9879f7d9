"""Named environments from a folder: archives, files that name others, locks, projects, Python."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.compute.models import Environment
from portal.compute.services.environments import default_python
from portal.notebooks.models import Server
from portal.workloads.models import PackageArchive
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.training.test_conda import ENVIRONMENT
from tests.portal.training.test_named_environments import PATH, problem
from tests.portal.training.test_package_archives import WHEEL, Files, in_wheel, sha256, wheel
from tests.portal.workloads.machines import Machine
from tests.workers.node_agent.packages import make_source

__all__ = ["wheel"]
pytestmark = pytest.mark.usefixtures("machine")


def code(api: Api, files: Files, project: str = "vision") -> str:
    """Upload files, and return the digest of the snapshot."""
    content = {name: it.encode() if isinstance(it, str) else it for name, it in files.items()}
    return take_code(api, content, project=project)


def create(api: Api, files: Files, name: str = "trees", **changes: Any) -> Any:
    """Create an environment from these files, and return it."""
    answer = api.post(PATH, {"name": name, "snapshot": code(api, files)} | changes)
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def lines(digest: str) -> list[str]:
    """The canonical requirements of an environment."""
    return Environment.objects.get(digest=digest).requirements.splitlines()


@pytest.mark.postgres
def test_a_folder_with_archives_becomes_versions_that_nodes_build(
    people: Personas, bob: Api, machine: Machine, wheel: bytes
) -> None:
    files: Files = {
        "requirements.txt": f"-r more/base.txt\n./wheels/{WHEEL}\n",
        "more/base.txt": "six==1.17.0\n-c pins.txt\n",
        "more/pins.txt": "numpy<3\n",
        f"wheels/{WHEEL}": wheel,
    }
    made = create(bob, files)
    archive = f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"
    assert (made["version"], made["packages"]) == (1, 2)
    assert lines(made["digest"]) == ["--constraint numpy<3", archive, "six==1.17.0"]
    built = bob.post(f"{PATH}/trees/versions/1/build")
    assert json_of(built)["requested"] == ["lab"]
    path = f"environments/{made['digest']}/archives/{sha256(wheel)}?project={people.vision.pk}"
    answer: Any = machine.call("GET", path)
    assert b"".join(answer.streaming_content) == wheel
    # The page shows the lines, and a later version may keep them as they are.
    shown = json_of(bob.get(f"{PATH}/trees/versions/1"))
    changed = f"{shown['document']}\nhumanize\n"
    second = json_of(bob.post(f"{PATH}/trees/versions", {"requirements": changed}))
    assert lines(second["digest"])[-2:] == ["humanize", "six==1.17.0"]
    same = bob.post(f"{PATH}/trees/versions", {"snapshot": code(bob, files)})
    assert same.status_code == 201, "it is other than version 2"
    again = bob.post(f"{PATH}/trees/versions", {"snapshot": code(bob, files)})
    assert problem(again, 409)["code"] == "same_packages"
    job = submit(bob, snapshot=code(bob, {"train.py": b""}), environment="trees@1")
    assert json_of(job)["workload"]["environment"] == made["digest"]


@pytest.mark.postgres
def test_a_notebook_server_has_the_archives_of_its_environment(
    bob: Api, machine: Machine, wheel: bytes
) -> None:
    create(bob, {"requirements.txt": f"./{WHEEL}", WHEEL: wheel})
    answer = bob.post(
        "projects/vision/notebooks/servers",
        {"name": "lab", "tier": "small", "environment": "trees"},
    )
    assert answer.status_code in (200, 201), answer.content
    server = Server.objects.select_related("workload").get()
    assert server.workload is not None
    needed = lines(server.workload.environment)
    assert f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}" in needed
    assert "jupyterlab" in needed
    run_passes()
    path = f"environments/{server.workload.environment}/archives/{sha256(wheel)}"
    fetched: Any = machine.call("GET", f"{path}?project={server.workload.project_id}")
    assert b"".join(fetched.streaming_content) == wheel


def test_the_file_is_the_one_that_a_job_would_use_or_the_one_that_is_named(
    bob: Api, wheel: bytes, tmp_path: Path
) -> None:
    project = (
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["humanize>=4"]\n[project.optional-dependencies]\ngpu = ["six"]\n'
    )
    source = make_source(tmp_path, "harbour", "2.0").read_bytes()
    files: Files = {
        "pyproject.toml": project,
        "gpu/requirements.txt": f"-e ..[gpu]\n--find-links ../wheels\n../{WHEEL}\n",
        WHEEL: wheel,
        "wheels/harbour-2.0.tar.gz": source,
    }
    assert lines(create(bob, files)["digest"]) == ["humanize>=4"]
    other = create(bob, files, "gpu", requirements_file="gpu/requirements.txt")
    assert lines(other["digest"]) == [
        f"--find-links file:harbour-2.0.tar.gz#sha256={sha256(source)}",
        f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}",
        "humanize>=4",
        "six",
    ]
    text = create(bob, files, "text", requirements=f"./{WHEEL}\n")
    assert lines(text["digest"]) == [f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"]


def test_the_python_is_that_of_the_folder_the_request_or_the_version_before(
    bob: Api, settings: Settings
) -> None:
    own = default_python()
    files: Files = {"requirements.txt": "six", ".python-version": "3.13\n"}
    assert create(bob, files)["python"] == "3.13"
    assert create(bob, files, "asked", python="3.12")["python"] == "3.12"
    plain: Files = {"requirements.txt": "humanize"}
    assert create(bob, plain, "plain")["python"] == own
    later = bob.post(f"{PATH}/asked/versions", {"snapshot": code(bob, plain)})
    assert json_of(later)["python"] == "3.12", "as the version before"
    tagged = WHEEL.replace("py3-none-any", "cp312-cp312-manylinux2014_x86_64")
    text = "Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.0\n"
    files = {
        "requirements.txt": f"./{tagged}",
        tagged: in_wheel("m.py", text),
        "pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.11"\n',
    }
    wheel_of_it = bob.post(f"{PATH}/asked/versions", {"snapshot": code(bob, files)})
    assert json_of(wheel_of_it)["python"] == "3.12", wheel_of_it.content
    files["pyproject.toml"] = '[project]\nname = "x"\nrequires-python = "<3.12"\n'
    refused = problem(bob.post(f"{PATH}/asked/versions", {"snapshot": code(bob, files)}))
    assert "it is a wheel for cp312" in refused["detail"]


def test_conda_with_an_archive_for_pip(bob: Api, wheel: bytes) -> None:
    text = ENVIRONMENT.replace("- -r more.txt", f"- ./{WHEEL}")
    made = create(bob, {"environment.yml": text, WHEEL: wheel})
    assert made["is_conda"] is True
    assert f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}" in lines(made["digest"])
    shown = json_of(bob.get(f"{PATH}/trees/versions/1"))
    again = bob.post(f"{PATH}/trees/versions", {"requirements": shown["document"]})
    assert problem(again, 409)["code"] == "same_packages"
    digest = code(bob, {"environment.yml": text, WHEEL: wheel})
    chosen = bob.post(PATH, {"name": "other", "snapshot": digest, "python": "3.12"})
    assert problem(chosen)["code"] == "python_in_conda"


@pytest.mark.parametrize(
    ("files", "changes", "code_", "field", "detail"),
    [
        ({"a.txt": b"x"}, {}, "no_packages", "snapshot", "No file at the top"),
        ({"requirements.txt": b"# none\n"}, {}, "no_packages", "snapshot", "names a package"),
        ({"a.txt": b""}, {"requirements": "-c a.txt"}, "no_packages", "requirements", "no package"),
        (
            {"a.txt": b"#"},
            {"requirements_file": "a.txt"},
            "no_packages",
            "requirements_file",
            "a.txt",
        ),
        (
            *({"a.txt": b""}, {"requirements_file": "b.txt"}),
            *("bad_requirement", "requirements_file", "has no file b.txt"),
        ),
        (
            *({"a.txt": b""}, {"requirements": "x", "requirements_file": "a.txt"}),
            *("two_sources", "requirements_file", "Both"),
        ),
        (
            *({"a.txt": b"six\n../b.whl\n"}, {"requirements_file": "a.txt"}),
            *("bad_requirement", "requirements", "Line 2 of a.txt"),
        ),
        (
            *({"Dockerfile": b"FROM x\n"}, {"requirements_file": "Dockerfile"}),
            *("image_in_environment", "requirements_file", "builds an image"),
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field(
    bob: Api, files: Files, changes: dict[str, str], code_: str, field: str, detail: str
) -> None:
    body = {"name": "trees", "snapshot": code(bob, files)} | changes
    refused = problem(bob.post(PATH, body))
    assert detail in refused["detail"], refused
    assert refused["next_step"]
    assert (refused["code"], refused["field"]) == (code_, field)
    assert not Environment.objects.exists()


@pytest.mark.postgres
def test_a_snapshot_of_another_project_does_not_exist(
    people: Personas, bob: Api, wheel: bytes
) -> None:
    charlie = Api.of(people.charlie)
    theirs = code(charlie, {"requirements.txt": f"./{WHEEL}", WHEEL: wheel}, project="other")
    body = {"name": "trees", "snapshot": theirs}
    refused = problem(bob.post(PATH, body))
    assert (refused["code"], refused["field"]) == ("no_such_snapshot", "snapshot")
    unknown = problem(bob.post(PATH, {"name": "trees", "snapshot": "0" * 64}))
    assert unknown["detail"] == refused["detail"]
    without = problem(bob.post(PATH, {"name": "trees", "requirements_file": "a.txt"}))
    assert (without["field"], "--code" in without["next_step"]) == ("snapshot", True)
    made = charlie.post("projects/other/named-environments", body)
    assert made.status_code == 201, made.content
    line = f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"
    stolen = problem(bob.post(PATH, {"name": "trees", "requirements": line}))
    assert stolen["code"] == "unknown_archive"
    assert [it.project_id for it in PackageArchive.objects.all()] == [people.other.pk]
