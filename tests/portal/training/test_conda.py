"""Conda environments of jobs: found beside the script, named in the quote, refused by line."""

import json
from typing import Any

import pytest
from pytest_django import Settings

from portal.compute.models import Environment
from portal.compute.services.environments import default_python
from portal.training.models import Job
from portal.workloads.scheduling import run_passes
from tests.personas import Api, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.training.test_requirements import quote_and_submit, refusal
from tests.portal.workloads.machines import Machine, make_machine

FORGE = "https://conda.anaconda.org/conda-forge"
DIGEST = "a" * 64
ENVIRONMENT = """\
name: research
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python=3.12
  - numpy >=2,<3
  - pip
  - pip:
      - iniconfig==2.1.0
      - -r more.txt
variables:
  STAGE: train
"""


def lock(platform: str = "linux-64", *, name: str = "six", digest: str = DIGEST) -> str:
    """A conda-lock.yml with a package of conda and one of pip."""
    return f"""\
version: 1
metadata:
  channels:
    - url: conda-forge
package:
  - name: {name}
    version: 1.16.0
    manager: conda
    platform: {platform}
    dependencies:
      python: ''
    url: {FORGE}/noarch/{name}-1.16.0-pyh6c4a22f_0.tar.bz2
    hash:
      md5: e5f25f8dbc060e9a8d912e432202afc2
      sha256: {digest}
    category: main
    optional: false
  - name: iniconfig
    version: 2.1.0
    manager: pip
    platform: {platform}
    url: https://files.example.org/iniconfig-2.1.0-py3-none-any.whl
    hash:
      sha256: {digest}
    category: main
    optional: false
"""


def conda_of(digest: str = "") -> Any:
    """The canonical packages of the newest environment, or of the one with this digest."""
    rows = Environment.objects.filter(digest=digest) if digest else Environment.objects.all()
    return json.loads(rows.latest("pk").conda)


@pytest.mark.postgres
@pytest.mark.usefixtures("machine")
def test_an_environment_is_found_and_named(bob: Api) -> None:
    files = {"environment.yml": ENVIRONMENT, "more.txt": "humanize\n", ".python-version": "3.99"}
    packages, lines = quote_and_submit(bob, files)
    assert packages["explanation"] == (
        "3 conda packages and 2 of pip from environment.yml, from conda-forge. "
        "Python 3.12 of conda."
    )
    assert (packages["file"], packages["count"]) == ("environment.yml", 5)
    assert (packages["python"], packages["is_installed"]) == ("3.12", False)
    assert lines == ["humanize", "iniconfig==2.1.0"]
    environment = Environment.objects.latest("pk")
    assert environment.python == "3.12"
    assert json.loads(environment.conda) == {
        "channels": [FORGE],
        "packages": ["python=3.12", "numpy >=2,<3", "pip"],
        "variables": {"STAGE": "train"},
    }
    job = Job.objects.latest("pk")
    assert (job.requirements_file, job.finds_requirements) == ("environment.yml", True)
    # The node does not need this Python, because it comes with the packages.
    assert job.workload.python == ""
    shown = bob.get(f"projects/vision/environments/{environment.digest}")
    assert json_of(shown)["conda"] == environment.conda
    clone = bob.post(f"projects/vision/jobs/{job.workload_id}/clone", {})
    assert clone.status_code == 201, clone.content
    assert json_of(clone)["workload"]["environment"] == environment.digest


@pytest.mark.usefixtures("machine")
def test_what_is_used_unless_something_else_is_asked_for(bob: Api) -> None:
    files = {"environment.yml": "dependencies: [python]\n", "pyproject.toml": PROJECT}
    packages, _ = quote_and_submit(bob, files)
    assert packages["explanation"] == (
        "1 conda package from environment.yml, from conda-forge. With the Python of conda. "
        "Not used beside it: pyproject.toml."
    )
    more = {**files, "requirements.txt": "humanize\n"}
    packages, _ = quote_and_submit(bob, more)
    assert packages["explanation"] == (
        "1 package from requirements.txt. Not used beside it: environment.yml."
    )
    packages, _ = quote_and_submit(bob, more, requirements_file="environment.yml")
    assert packages["explanation"].startswith("1 conda package from environment.yml")
    assert quote_and_submit(bob, files, requirements="")[0]["is_installed"]
    packages, _ = quote_and_submit(bob, {}, requirements="dependencies:\n  - python=3.11\n")
    assert packages["explanation"] == (
        "1 conda package of the request, from conda-forge. Python 3.11 of conda."
    )


PROJECT = '[project]\nname = "acme"\nversion = "1"\ndependencies = ["six"]\n'


@pytest.mark.usefixtures("machine")
def test_a_lock_has_exact_packages(bob: Api) -> None:
    files = {"conda-lock.yml": lock(), "environment.yml": ENVIRONMENT}
    packages, lines = quote_and_submit(bob, files)
    assert packages["explanation"] == (
        "1 exact conda package and 1 of pip from conda-lock.yml, from conda-forge. With the Python "
        "of conda. Not used beside it: environment.yml."
    )
    assert lines == [f"iniconfig==2.1.0 --hash=sha256:{DIGEST}"]
    url = f"{FORGE}/noarch/six-1.16.0-pyh6c4a22f_0.tar.bz2"
    assert conda_of() == {
        "channels": [FORGE],
        "archives": {"linux-64": [f"{url}#sha256:{DIGEST}"]},
    }
    explicit = f"# This file may be used to create an environment\n@EXPLICIT\n{url}#{DIGEST}\n"
    quote_and_submit(bob, {"exact.txt": explicit}, requirements_file="exact.txt")
    assert conda_of()["archives"]["linux-64"] == [f"{url}#sha256:{DIGEST}"]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("file", "text", "detail"),
    [
        (
            "environment.yml",
            "channels: [defaults]\ndependencies: [python]\n",
            (
                "Line 1 of environment.yml, 'channels: [defaults]', is not accepted: defaults is "
                "not "
                "among the channels that an administrator allows."
            ),
        ),
        (
            "environment.yml",
            "dependencies:\n  - python\n  - bioconda::samtools\n",
            (
                "Line 3 of environment.yml, '- bioconda::samtools', is not accepted: bioconda is "
                "not "
                "among the channels that an administrator allows."
            ),
        ),
        (
            "environment.yml",
            "dependencies: [python]\nprefix: /opt/envs/x\n",
            (
                "Line 2 of environment.yml, 'prefix: /opt/envs/x', is not "
                "accepted: it "
                "names a folder of your machine, and a node chooses its own."
            ),
        ),
        (
            "environment.yml",
            "dependencies:\n  - python\n  - pywin32  # [win]\n",
            (
                "Line 3 of environment.yml, '- pywin32  # [win]', is not accepted: selectors "
                "after # "
                "are comments for conda, which would install the package on every machine."
            ),
        ),
        (
            "environment.yml",
            "dependencies:\n  - sel(linux): mkl\n",
            (
                "Line 2 of environment.yml, '- sel(linux): mkl', is not accepted: it is neither a "
                "package nor the list pip:."
            ),
        ),
        (
            "environment.yml",
            "- python\n- numpy\n",
            (
                "Line 1 of environment.yml, '- python', is not accepted: the file is no mapping of "
                "keys to values."
            ),
        ),
        (
            "environment.yml",
            "dependencies:\n  - python\n  - pip:\n      - six\n      - --use-pep517\n",
            (
                "Line 5 of environment.yml, '--use-pep517', is not accepted: the option "
                "--use-pep517 is not supported."
            ),
        ),
        (
            "environment.yml",
            "dependencies: [python]\nvariables:\n  SLIPWAY_URL: x\n",
            (
                "Line 3 of environment.yml, 'SLIPWAY_URL: x', is not accepted: SLIPWAY_URL is "
                "reserved: names that begin with SLIPWAY_ belong to the platform."
            ),
        ),
        (
            "environment.yml",
            "dependencies: [&a python, *a]\n",
            (
                "Line 1 of environment.yml, 'dependencies: [&a python, *a]', is not accepted: "
                "anchors "
                "and aliases are not read."
            ),
        ),
        (
            "environment.yml",
            "dependencies: [python]\n" + "#" * 300_000,
            "Line 1 of environment.yml, '…', is not accepted: the file is longer than 256 KiB.",
        ),
        (
            "environment.yml",
            "dependencies:\n  - numpy[url='https://example.org/x.conda']\n",
            (
                "Line 2 of environment.yml, \"- numpy[url='https://example.org/x.conda']\", is not "
                "accepted: the form with [ ] is not read."
            ),
        ),
        (
            "conda-lock.yml",
            lock("osx-arm64"),
            (
                "Line 1 of conda-lock.yml, 'version: 1', is not accepted: it locks packages for "
                "osx-arm64 alone, and nodes are linux-64 or linux-aarch64."
            ),
        ),
        (
            "conda-lock.yml",
            lock(digest="''"),
            "Line 6 of conda-lock.yml, '- name: six', is not accepted: it has no sha256 digest.",
        ),
        (
            "conda-lock.yml",
            lock(name="../../x"),
            (
                "Line 6 of conda-lock.yml, '- name: ../../x', is not accepted: its address has an "
                "unclear form."
            ),
        ),
        (
            "conda-lock.yml",
            lock().replace("conda-forge/noarch", "bioconda/noarch"),
            (
                "Line 6 of conda-lock.yml, '- name: six', is not accepted: "
                "https://conda.anaconda.org/bioconda is not among the channels that an "
                "administrator "
                "allows."
            ),
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    bob: Api, file: str, text: str, detail: str
) -> None:
    problem = refusal(bob, {file: text})
    assert (problem["code"], problem["detail"]) == ("bad_requirement", detail)
    assert problem["next_step"]


@pytest.mark.usefixtures("machine")
def test_an_administrator_allows_channels_and_mirrors(bob: Api, settings: Settings) -> None:
    mirror = "https://packages.example.org/forge"
    settings.SLIPWAY_CONDA_CHANNELS = f"conda-forge={mirror} bioconda https://own.example.org"
    text = (
        "channels: [conda-forge, bioconda, https://own.example.org/lab]\n"
        "dependencies: [python=3.11, 'conda-forge::numpy']\n"
    )
    packages, _ = quote_and_submit(bob, {"environment.yml": text})
    assert "from conda-forge, bioconda, own.example.org/lab." in packages["explanation"]
    assert conda_of() == {
        "channels": [
            mirror,
            "https://conda.anaconda.org/bioconda",
            "https://own.example.org/lab",
        ],
        "packages": ["python=3.11", f"{mirror}::numpy"],
    }
    quote_and_submit(bob, {"conda-lock.yml": lock()})
    assert conda_of()["archives"]["linux-64"][0].startswith(f"{mirror}/noarch/six")
    for name in ("https://own.example.org.evil.org", "https://own.example.org/../x", "http://x"):
        problem = refusal(
            bob, {"environment.yml": f"channels: ['{name}']\ndependencies: [python]\n"}
        )
        assert "is not among the channels" in problem["detail"]
    problem = refusal(
        bob,
        {"environment.yml": "channels: ['https://me:pw@own.example.org']\ndependencies: [x]\n"},
    )
    assert "accounts of channels are not supported" in problem["detail"]
    assert "pw" not in problem["detail"]


@pytest.mark.usefixtures("machine")
def test_the_python_is_that_of_conda(bob: Api) -> None:
    files = {"environment.yml": ENVIRONMENT, "more.txt": ""}
    problem = refusal(bob, files, python=default_python())
    assert (problem["code"], problem["field"]) == ("python_in_conda", "python")


@pytest.mark.usefixtures("machine")
def test_containers_do_not_build_environments_of_conda(bob: Api) -> None:
    make_machine("docked", cpus=4, backends=("docker", "process"))
    files = {"environment.yml": ENVIRONMENT, "more.txt": ""}
    packages, _ = quote_and_submit(bob, files, backend="docker")
    assert packages["explanation"] == (
        "The environment of the installation. environment.yml is not used in containers: a "
        "Dockerfile installs what they need."
    )
    assert packages["not_used"] == ["environment.yml"]
    problem = refusal(bob, files, backend="docker", requirements_file="environment.yml")
    assert (problem["code"], problem["field"]) == ("conda_in_container", "requirements_file")


@pytest.mark.postgres
def test_a_node_gets_the_packages_and_what_another_one_has_installed(
    bob: Api, machine: Machine
) -> None:
    files = {"train.py": b"", "environment.yml": b"dependencies: [python=3.12]\n"}
    answer = submit(bob, snapshot=take_code(bob, files), script="train.py", tier="small")
    digest = json_of(answer)["workload"]["environment"]
    run_passes()
    spec = json_of(machine.call("GET", f"environments/{digest}"))
    assert json.loads(spec["conda"])["packages"] == ["python=3.12"]
    assert (spec["conda_locked"], spec["requirements"], spec["python"]) == ("", "", "3.12")
    locked = f"# platform: linux-64\n@EXPLICIT\n{FORGE}/noarch/a-1-0.conda#sha256:{DIGEST}"
    report = {"state": "ready", "log_offset": 0, "log": "", "size_bytes": 1, "locked": locked}
    answer = machine.call("POST", f"environments/{digest}/reports", report)
    assert answer.status_code == 200, answer.content
    assert json_of(machine.call("GET", f"environments/{digest}"))["conda_locked"] == locked
