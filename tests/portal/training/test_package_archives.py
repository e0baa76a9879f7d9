"""Wheels and source archives in the code of a job: by digest, for one project, refused by line."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from portal.compute.models import Environment
from portal.compute.services.environments import default_python
from portal.workloads.models import PackageArchive
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.workloads.machines import Machine, make_machine
from tests.workers.node_agent.packages import make_source, make_wheel

pytestmark = pytest.mark.usefixtures("machine")
WHEEL = "acme_tools-1.0-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    """A wheel with one module."""
    return make_wheel(tmp_path, "acme_tools", "1.0").read_bytes()


Files = dict[str, bytes | str]


def sha256(content: bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(content).hexdigest()


def submitted(bob: Api, files: Mapping[str, bytes | str], **changes: Any) -> Any:
    """Submit a job with these files, and return the answer."""
    code = {name: it.encode() if isinstance(it, str) else it for name, it in files.items()}
    digest = take_code(bob, {"train.py": b"print(1)\n", **code})
    return submit(bob, snapshot=digest, **changes)


def environment_of(bob: Api, files: Mapping[str, bytes | str], **changes: Any) -> Environment:
    """The environment of a job with these files."""
    answer = submitted(bob, files, **changes)
    assert answer.status_code == 201, answer.content
    return Environment.objects.get(digest=json_of(answer)["workload"]["environment"])


@pytest.mark.postgres
def test_the_same_bytes_are_the_same_environment(bob: Api, wheel: bytes, tmp_path: Path) -> None:
    line = f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"
    files: Files = {"requirements.txt": f"six\n./w/{WHEEL}\n", f"w/{WHEEL}": wheel}
    first = environment_of(bob, files)
    assert first.requirements.splitlines() == [line, "six"]
    moved: Files = {"requirements.txt": f"six\nAcme_Tools @ file:./{WHEEL}\n", WHEEL: wheel}
    assert environment_of(bob, moved) == first
    (tmp_path / "other").mkdir()
    other = make_wheel(tmp_path / "other", "acme_tools", "1.0", {"more.py": "x = 1\n"}).read_bytes()
    changed = environment_of(bob, {**moved, WHEEL: other})
    assert changed.digest != first.digest
    assert sha256(other) in changed.requirements
    archives = PackageArchive.objects.order_by("pk").values_list("digest", flat=True)
    assert list(archives) == [sha256(wheel), sha256(other)]


def test_extras_markers_hashes_and_links(bob: Api, wheel: bytes, tmp_path: Path) -> None:
    source = make_source(tmp_path, "harbour", "2.0").read_bytes()
    files: Files = {
        "requirements.txt": "-r req/more.txt\n--find-links ./packages\nharbour\n",
        "req/more.txt": f'../{WHEEL}[gpu] ; python_version >= "3.11" \\\n'
        f"  --hash=sha256:{sha256(wheel)}\n",
        WHEEL: wheel,
        "packages/harbour-2.0.tar.gz": source,
        "packages/data.zip": b"no package",
    }
    lines = environment_of(bob, files).requirements.splitlines()
    assert lines == [
        f"--find-links file:harbour-2.0.tar.gz#sha256={sha256(source)}",
        f'acme-tools[gpu] @ file:{WHEEL}#sha256={sha256(wheel)} ; python_version >= "3.11"',
        "harbour",
    ]
    project = f'[project]\nname = "x"\ndependencies = ["acme-tools @ file:./{WHEEL}"]\n'
    in_project = environment_of(bob, {"pyproject.toml": project, WHEEL: wheel})
    assert sha256(wheel) in in_project.requirements
    text = environment_of(bob, {f"w/{WHEEL}": wheel}, requirements=f"./w/{WHEEL}")
    assert text.requirements == f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"
    conda = f"channels: [conda-forge]\ndependencies: [python, pip, {{pip: [./{WHEEL}]}}]\n"
    of_conda = environment_of(bob, {"environment.yml": conda, WHEEL: wheel})
    assert of_conda.requirements == text.requirements
    # A wheel that a marker leaves out may be for another Python.
    old = WHEEL.replace("py3-none-any", "cp38-cp38-linux_x86_64")
    files = {"requirements.txt": f"./{old} ; python_version < '3.9'\nsix==0\n", old: wheel}
    assert "cp38" in environment_of(bob, files).requirements


def in_wheel(name: str, text: str, info: str = "acme_tools-1.0.dist-info", kind: int = 0) -> bytes:
    """A wheel with one more member, which has these metadata."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{info}/METADATA", text)
        member = zipfile.ZipInfo(name)
        member.external_attr = kind << 16
        archive.writestr(member, "x")
    return buffer.getvalue()


def in_source(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A source archive with one member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
        archive.addfile(member)
    return buffer.getvalue()


METADATA = "Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.0\n"


@pytest.mark.parametrize(
    ("line", "name", "content", "reason", "way"),
    [
        (f"./w/{WHEEL}", WHEEL, METADATA, f"no file w/{WHEEL}", "--include"),
        (f"../{WHEEL}", WHEEL, "", "outside the submitted folder", "--code"),
        (f"acme @ file:%2e%2e/{WHEEL}", WHEEL, "", "outside the submitted folder", "--code"),
        ("--find-links ./none", WHEEL, "", "no wheels or source archives in none", "--include"),
        ("--find-links ../x", WHEEL, "", "outside the submitted folder", "--code"),
        (f"./{WHEEL}", WHEEL, "no zip", "the archive cannot be read", "Build it again"),
        (f"./{WHEEL}", WHEEL, "Name: other\nVersion: 1.0\n", "metadata say other 1.0", "python -m"),
        (f"./{WHEEL}", WHEEL, "Name: acme-tools\nVersion: 2\n", "metadata say acme-tools 2", ""),
        (f"beta @ file:./{WHEEL}", WHEEL, METADATA, "the package beta", "Write acme-tools"),
        (f"./{WHEEL} --hash=sha256:{'a' * 64}", WHEEL, METADATA, "has the sha256", "Correct the"),
        (f"./{WHEEL} --hash=md5:{'a' * 32}", WHEEL, METADATA, "only sha256", "sha256"),
        ("./acme.whl", "acme.whl", METADATA, "not the name of a wheel", "PYTHON-ABI-PLATFORM"),
        ("./a%20b-1-py3-none-any.whl", "a%20b-1-py3-none-any.whl", METADATA, "characters", ""),
        (
            *("./acme_tools-1.0-cp38-cp38-manylinux2014_x86_64.whl",) * 2,
            *(METADATA, f"for cp38-cp38, and the job has Python {default_python()}", "--python"),
        ),
        (
            *("./acme_tools-1.0-py3-none-win_amd64.whl",) * 2,
            *(METADATA, "for win_amd64, and nodes run Linux", "Linux"),
        ),
    ],
)
def test_an_archive_that_cannot_be_used_is_refused_by_its_line(
    bob: Api, line: str, name: str, content: str, reason: str, way: str
) -> None:
    data = content.encode() if "Name" not in content else in_wheel("m.py", content)
    answer = submitted(bob, {"requirements.txt": f"# code\n{line}\n", name: data})
    problem = json_of(answer)
    assert answer.status_code == 422, problem
    assert problem["code"] == "bad_requirement"
    assert "Line 2 of requirements.txt" in problem["detail"]
    assert reason in problem["detail"]
    assert way in problem["next_step"]
    assert not Environment.objects.exists()


def test_hostile_members_are_refused(bob: Api) -> None:
    link = 0o120777
    for content, reason in (
        (in_wheel("m.py", METADATA, kind=link), "is a symbolic link"),
        (in_wheel("../m.py", METADATA), "points outside its folder"),
        (in_wheel("m.py", METADATA, info="deep/acme_tools-1.0.dist-info"), "say no name"),
    ):
        problem = json_of(submitted(bob, {"requirements.txt": f"./{WHEEL}", WHEEL: content}))
        assert reason in problem["detail"]
    name = "acme_tools-1.0.tar.gz"
    for content, reason in (
        (in_source("acme_tools-1.0/x", tarfile.SYMTYPE), "is a symbolic link"),
        (in_source("../x"), "points outside its folder"),
        (b"\x1f\x8bxxxx", "cannot be read"),
    ):
        problem = json_of(submitted(bob, {"requirements.txt": f"./{name}", name: content}))
        assert reason in problem["detail"]


@pytest.mark.postgres
def test_a_node_gets_an_archive_of_its_task_alone(
    people: Personas, bob: Api, machine: Machine, wheel: bytes
) -> None:
    files: Files = {"requirements.txt": f"./w/{WHEEL}\n", "a.bin": b"x" * 700, f"w/{WHEEL}": wheel}
    environment = environment_of(bob, files)
    path = f"environments/{environment.digest}/archives/{sha256(wheel)}"
    query = f"?project={people.vision.pk}"
    assert machine.call("GET", path + query).status_code == 404  # not placed yet
    run_passes()
    answer: Any = machine.call("GET", path + query)
    assert b"".join(answer.streaming_content) == wheel
    assert answer.headers["Content-Length"] == str(len(wheel))
    assert make_machine("other").call("GET", path + query).status_code == 404
    for changed in (path, f"{path}?project={people.other.pk}", path[:-1] + "0" + query):
        assert machine.call("GET", changed).status_code == 404


@pytest.mark.postgres
def test_an_archive_of_another_project_does_not_exist(
    people: Personas, bob: Api, wheel: bytes
) -> None:
    line = f"acme-tools @ file:{WHEEL}#sha256={sha256(wheel)}"
    files: Files = {"requirements.txt": f"{line}\n"}
    problem = json_of(submitted(bob, files))
    assert problem["code"] == "unknown_archive"
    assert f"./wheels/{WHEEL}" in problem["next_step"]
    charlie = Api.of(people.charlie)
    code = {"train.py": b"", "requirements.txt": f"./{WHEEL}".encode(), WHEEL: wheel}
    body = {"snapshot": take_code(charlie, code, project="other"), "script": "train.py"}
    made = charlie.post("projects/other/jobs", {**body, "tier": "small"})
    assert made.status_code == 201, made.content
    assert json_of(submitted(bob, files))["detail"] == problem["detail"]
    named = bob.post("projects/vision/named-environments", {"name": "x", "requirements": line})
    assert json_of(named)["detail"] == problem["detail"]
    # Whoever submitted the file once may name it by its digest.
    assert submitted(bob, {"requirements.txt": f"./{WHEEL}", WHEEL: wheel}).status_code == 201
    assert environment_of(bob, files).requirements == line


def test_a_clone_installs_the_same_archive(bob: Api, wheel: bytes) -> None:
    files: Files = {"requirements.txt": f"./{WHEEL}", WHEEL: wheel}
    job = json_of(submitted(bob, files))
    clone = json_of(bob.post(f"projects/vision/jobs/{job['workload']['id']}/clone", {}))
    assert clone["workload"]["environment"] == job["workload"]["environment"]
