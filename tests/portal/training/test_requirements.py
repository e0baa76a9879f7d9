"""Packages of a job: found beside its script, named in the quote, refused by file and line."""

from collections.abc import Mapping
from typing import Any

import pytest
from pytest_django import Settings

from portal.accounts.services.secrets import write_secret
from portal.compute.models import Environment
from portal.training.models import Job
from portal.workloads.models import Workload
from portal.workloads.specs import RunSpec
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import submit, take_code

pytestmark = pytest.mark.usefixtures("machine")
INDEX = "https://packages.example.org/wheels"
H = {name: f"sha256:{name * 64}" for name in "abcdef"}


def quote_and_submit(bob: Api, files: Mapping[str, str], **changes: Any) -> tuple[Any, list[str]]:
    """The packages of the quote, and the requirements of the environment of the job."""
    code = {"train.py": "print(1)\n", **files}
    digest = take_code(bob, {name: text.encode() for name, text in code.items()})
    body = {"snapshot": digest, "script": "train.py", "tier": "small"} | changes
    quote = bob.post("projects/vision/jobs/quote", body)
    assert quote.status_code == 200, quote.content
    job = submit(bob, **body)
    assert job.status_code == 201, job.content
    workload = json_of(job)["workload"]
    environment = Environment.objects.filter(digest=workload["environment"]).first()
    return json_of(quote)["packages"], environment.requirements.splitlines() if environment else []


def refusal(bob: Api, files: Mapping[str, str], **changes: Any) -> Any:
    """The problem of a submission, which the quote names too."""
    code = {"train.py": "print(1)\n", **files}
    digest = take_code(bob, {name: text.encode() for name, text in code.items()})
    body = {"snapshot": digest, "script": "train.py", "tier": "small"} | changes
    answer = submit(bob, **body)
    assert answer.status_code == 422, answer.content
    problem = json_of(answer)
    quote = bob.post("projects/vision/jobs/quote", body)
    assert json_of(quote)["detail"] == problem["detail"]
    return problem


def test_requirements_beside_the_script_are_found_and_named(bob: Api) -> None:
    packages, lines = quote_and_submit(bob, {"requirements.txt": "humanize\nSix==1.16\n"})
    assert lines == ["humanize", "six==1.16"]
    assert packages["explanation"] == "2 packages from requirements.txt."
    assert (packages["file"], packages["count"]) == ("requirements.txt", 2)
    job = Job.objects.latest("pk")
    assert (job.requirements_file, job.finds_requirements) == ("requirements.txt", True)


def test_the_nearest_file_counts_and_others_are_not_ignored_in_silence(bob: Api) -> None:
    files = {
        "requirements.txt": "far\n",
        "exp/train.py": "",
        "exp/requirements.txt": "near\n",
        "exp/uv.lock": "version = 1\n",
        "exp/environment.yml": "name: x\n",
        "Dockerfile": "FROM x\n",
    }
    packages, lines = quote_and_submit(bob, files, script="exp/train.py")
    assert lines == ["near"]
    assert packages["explanation"] == (
        "1 package from exp/requirements.txt. Dockerfile is not used: it needs a node that runs "
        "containers, and there is none. An administrator starts an agent with --backend docker. "
        "Not used beside it: exp/uv.lock, exp/environment.yml."
    )
    assert packages["not_used"] == ["Dockerfile"]


def test_something_else_can_be_asked_for(bob: Api) -> None:
    files = {"requirements.txt": "found\n", "dev/more.txt": "-r ../base.txt\n", "base.txt": "b\n"}
    assert quote_and_submit(bob, files, requirements="mine")[1] == ["mine"]
    packages, lines = quote_and_submit(bob, files, requirements="")
    assert (lines, packages["explanation"]) == ([], "The environment of the installation.")
    packages, lines = quote_and_submit(bob, files, requirements_file="dev/more.txt")
    assert (lines, packages["file"]) == (["b"], "dev/more.txt")


def test_what_the_installation_has_needs_no_build(bob: Api) -> None:
    packages, lines = quote_and_submit(bob, {"requirements.txt": "numpy\ntorch>=2\n"})
    assert lines == []
    assert packages["is_installed"]
    assert packages["explanation"] == (
        "The environment of the installation, which has the 2 packages of requirements.txt."
    )


def test_files_that_a_file_names_are_read(bob: Api) -> None:
    files = {
        "requirements.txt": "-r req/base.txt\n-c pins.txt\nrequests[socks] ; os_name == 'posix'\n",
        "req/base.txt": "-r more.txt  # and more\nsix==1.16 \\\n  --hash=" + H["a"] + "\n",
        "req/more.txt": "-r base.txt\nattrs\n",
        "pins.txt": "urllib3<2\nnothing\n",
    }
    assert quote_and_submit(bob, files)[1] == [
        "--constraint urllib3<2",
        "attrs",
        'requests[socks] ; os_name == "posix"',
        f"six==1.16 --hash={H['a']}",
    ]


def test_a_project_brings_its_dependencies_and_is_imported_from_its_folder(bob: Api) -> None:
    project = (
        '[project]\nname = "acme"\nversion = "1"\ndependencies = ["humanize>=4"]\n'
        '[project.optional-dependencies]\ndev = ["six"]\n'
    )
    files = {"pyproject.toml": project, "src/acme/__init__.py": ""}
    packages, lines = quote_and_submit(bob, files)
    assert (lines, packages["file"]) == (["humanize>=4"], "pyproject.toml")
    env = RunSpec.model_validate(Workload.objects.latest("pk").spec).env
    assert env == {"PYTHONPATH": "src"}
    files = {"requirements.txt": "-e .[dev]\nrequests\n", "pyproject.toml": project}
    assert quote_and_submit(bob, files)[1] == ["humanize>=4", "requests", "six"]
    assert RunSpec.model_validate(Workload.objects.latest("pk").spec).env == {"PYTHONPATH": "."}
    tools = {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"}
    assert quote_and_submit(bob, tools)[0]["file"] is None


def test_an_index_must_be_allowed_by_an_administrator(bob: Api, settings: Settings) -> None:
    files = {"requirements.txt": f"six\n--extra-index-url {INDEX}/\ntorch==99"}
    problem = refusal(bob, files)
    assert "Line 2 of requirements.txt" in problem["detail"]
    assert "packages.example.org is not among the package indexes" in problem["detail"]
    assert "SLIPWAY_PACKAGE_INDEXES" in problem["next_step"]
    settings.SLIPWAY_PACKAGE_INDEXES = INDEX
    assert quote_and_submit(bob, files)[1] == [f"--extra-index-url {INDEX}", "six", "torch==99"]
    for trick in (f"{INDEX}/../x", f"{INDEX}.evil.org", f"{INDEX}?x=1", f"{INDEX}/%2e%2e/x"):
        refusal(bob, {"requirements.txt": f"--index-url {trick}\nsix==0"})


def test_the_account_of_an_index_is_a_secret_of_the_project(
    people: Personas, bob: Api, settings: Settings
) -> None:
    settings.SLIPWAY_PACKAGE_INDEXES = INDEX

    def of(account: str, more: str = "") -> dict[str, str]:
        address = INDEX.replace("//", f"//{account}@")
        return {"requirements.txt": f"--extra-index-url {address}\n{more}acme-tools==1"}

    problem = refusal(bob, of("build:hunter2"))
    assert "Line 1 of requirements.txt" in problem["detail"]
    assert "hunter2" not in str(problem)
    assert "https://USER:${ACME_TOKEN}@" in problem["next_step"]
    assert "https://USER:${ACME_TOKEN}@" in refusal(bob, of("${ACME_TOKEN}"))["next_step"]
    for account in ("build:${ACME_TOKEN}", "${ACME_USER}:${ACME_TOKEN}"):
        problem = refusal(bob, of(account))
        assert problem["code"] == "unknown_secret"
    for name in ("ACME_USER", "ACME_TOKEN"):
        write_secret(project=people.vision, by=people.alice, name=name, value="x")
    line = f"--extra-index-url {INDEX.replace('//', '//${ACME_USER}:${ACME_TOKEN}@')}"
    _, lines = quote_and_submit(bob, of("${ACME_USER}:${ACME_TOKEN}"))
    assert lines == [line, "acme-tools==1"]
    other = f"--find-links {INDEX.replace('//', '//other:${ACME_TOKEN}@')}\n"
    problem = refusal(bob, of("build:${ACME_TOKEN}", other))
    assert "another account for packages.example.org" in problem["detail"]
    refusal(bob, {"requirements.txt": "x @ git+https://a:${ACME_TOKEN}@example.org/x.git"})


@pytest.mark.parametrize(
    ("files", "where", "reason", "way"),
    [
        ({"requirements.txt": "a\n-r no.txt"}, "Line 2 of requirements.txt", "no file no.txt", ""),
        (
            {"requirements.txt": "-r b.txt", "b.txt": "x \\\n ==1\n./w/a-1-py3-none-any.whl"},
            *("Line 3 of b.txt", "no file w/a-1-py3-none-any.whl", "--include"),
        ),
        ({"requirements.txt": "-r ../x.txt"}, "Line 1 of", "outside the submitted", "--code"),
        ({"requirements.txt": "-e ."}, "Line 1 of", "a setup.py is not run", "pyproject.toml"),
        (
            {"pyproject.toml": '[project]\nname="a"\ndynamic=["dependencies"]'},
            *("pyproject.toml", "are dynamic", "List them in dependencies"),
        ),
        (
            {"pyproject.toml": '[project]\nname="a"\ndependencies=[\n"a",\n"b @ file:///x"]'},
            *("Line 5 of pyproject.toml", "no files of your machine", ""),
        ),
        ({"pyproject.toml": "tool = 1\n[project]\n"}, "pyproject.toml", "are tables", "--no-req"),
        ({"uv.lock": "version = "}, "uv.lock", "cannot be read", "Lock again"),
        ({"uv.lock": "package = [{name = 1}]"}, "uv.lock", "no package of", "Lock again"),
    ],
)
def test_a_refusal_names_file_line_reason_and_way(
    bob: Api, files: dict[str, str], where: str, reason: str, way: str
) -> None:
    problem = refusal(bob, files)
    assert where in problem["detail"]
    assert reason in problem["detail"]
    assert way in problem["next_step"]


UV_LOCK = f"""
version = 1
[[package]]
name = "acme"
version = "1.0"
source = {{ editable = "." }}
dependencies = [
    {{ name = "colorama", marker = "sys_platform == 'win32'" }},
    {{ name = "requests", extra = ["socks"] }},
    {{ name = "fast", marker = "platform_machine == 'x86_64'" }},
]
[[package]]
name = "requests"
version = "2.32.0"
source = {{ registry = "https://packages.example.org/wheels" }}
dependencies = [{{ name = "idna" }}]
sdist = {{ url = "https://f/requests-2.32.0.tar.gz", hash = "{H["a"]}", size = 1 }}
wheels = [{{ url = "https://f/requests-2.32.0-py3-none-any.whl", hash = "{H["b"]}", size = 1 }}]
[package.optional-dependencies]
socks = [{{ name = "pysocks" }}]
[[package]]
name = "pysocks"
version = "1.7"
source = {{ registry = "https://packages.example.org/wheels" }}
[[package]]
name = "idna"
version = "3.0"
source = {{ registry = "https://packages.example.org/wheels" }}
wheels = [{{ url = "https://f/idna-3.0-cp39-cp39-win_amd64.whl", hash = "{H["c"]}", size = 1 }}]
[[package]]
name = "fast"
version = "5"
source = {{ git = "https://github.com/x/fast?rev=v5#{"a" * 40}" }}
[[package]]
name = "colorama"
version = "0.4"
source = {{ registry = "https://packages.example.org/wheels" }}
[[package]]
name = "pytest"
version = "8"
source = {{ registry = "https://packages.example.org/wheels" }}
"""


def test_a_lock_of_uv_gives_exact_versions_with_hashes(bob: Api) -> None:
    files = {"uv.lock": UV_LOCK, "pyproject.toml": '[project]\nname="acme"\n'}
    packages, lines = quote_and_submit(bob, files)
    assert lines == [
        f'fast @ git+https://github.com/x/fast@{"a" * 40} ; platform_machine == "x86_64"',
        "idna==3.0",
        "pysocks==1.7",
        f"requests==2.32.0 --hash={H['a']} --hash={H['b']}",
    ]
    assert packages["explanation"] == "4 packages from uv.lock."


@pytest.mark.parametrize("is_new", [True, False])
def test_a_lock_of_poetry_gives_exact_versions_with_hashes(bob: Api, is_new: bool) -> None:
    groups = {name: f'groups = ["{name}"]\n' if is_new else "" for name in ("main", "dev")}
    lock = (
        f'[[package]]\nname = "requests"\nversion = "2.32"\noptional = false\n{groups["main"]}'
        f'files = [{{file = "requests-2.32-py3-none-any.whl", hash = "{H["d"]}"}}]\n'
        '[package.dependencies]\nidna = ">=2"\n'
        'win = {version = "*", markers = "sys_platform == \\"win32\\""}\n'
        f'[[package]]\nname = "idna"\nversion = "3.0"\n{groups["main"]}files = []\n'
        f'[[package]]\nname = "pytest"\nversion = "8"\n{groups["dev"]}files = []\n'
    )
    project = '[tool.poetry.dependencies]\npython = "^3.11"\nrequests = "^2"\n'
    lines = quote_and_submit(bob, {"poetry.lock": lock, "pyproject.toml": project})[1]
    assert lines == ["idna==3.0", f"requests==2.32 --hash={H['d']}"]


def test_a_clone_keeps_the_packages_and_new_code_is_searched_again(bob: Api) -> None:
    quote_and_submit(bob, {"requirements.txt": "first\n"})
    job = Job.objects.latest("pk").pk
    clone = json_of(bob.post(f"projects/vision/jobs/{job}/clone", {}))
    assert clone["requirements_file"] == "requirements.txt"
    code = take_code(bob, {"train.py": b"", "requirements.txt": b"second\n"})
    clone = json_of(bob.post(f"projects/vision/jobs/{job}/clone", {"snapshot": code}))
    environment = Environment.objects.get(digest=clone["environment"])
    assert environment.requirements == "second"
