"""The form of a job: code, price before anything starts, refusals beside their fields, clones."""

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import Settings

from portal.compute.services.pools import create_pool
from portal.storage.backend import blob_store
from portal.training.models import Job, Snapshot
from portal.web.jobs.forms import STRATEGIES
from portal.workloads.models import Workload
from slipway.schemas.strategy import parse_strategy
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import SCRIPT, make_job, run_job, take_code, use_store
from tests.portal.web.reading import fault_of, form_of, html_of, text_of
from tests.portal.workloads.machines import Machine, make_machine, make_tier

NEW = "/p/vision/jobs/new"


@pytest.fixture(autouse=True)
def machine(people: Personas, settings: Settings, tmp_path: Path) -> Machine:
    """A machine with two places of the tier small, at 3.60 USD an hour, and of none other."""
    use_store(settings, tmp_path)
    made = make_machine("lab-1", cpus=2, gib=8)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    make_tier("huge", cpus=64, gib=512, nano_usd_per_hour=9_000_000_000)
    return made


def _fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "script": "train.py",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
    }
    return fields | changes


def _notebook(*cells: str) -> bytes:
    entries = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": entries, "metadata": {}}).encode()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _tar(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_script_is_uploaded_and_runs_with_everything_the_form_says(
    people: Personas, browse: Browse
) -> None:
    file = SimpleUploadedFile("train.py", SCRIPT)
    fields = _fields(
        code=file,
        args="--name 'two words'",
        params="lr = 0.2\n\nsteps=10\n",
        procs="2",
        strategy="ddp",
        max_hours="1.5",
        max_attempts="2",
        priority="3",
        name="first try",
    )
    answer = browse(people.bob).post(NEW, fields, follow=True)
    assert "first try submitted" in text_of(answer)
    job = Job.objects.get()
    assert (job.args, job.params) == (["--name", "two words"], {"lr": "0.2", "steps": "10"})
    assert job.strategy == "ddp"
    workload = job.workload
    assert (workload.procs, workload.max_attempts, workload.priority) == (2, 2, 3)
    assert workload.max_lifetime_s == 5400
    assert workload.submitted_by == people.bob


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("code.zip", _zip({"proj/train.py": SCRIPT, "proj/lib/model.py": b"x = 1\n"})),
        ("code.tar.gz", _tar({"train.py": SCRIPT, "lib/model.py": b"x = 1\n"})),
        ("code.tar", _tar({"proj/train.py": SCRIPT, "proj/lib/model.py": b"x = 1\n"}, "w")),
    ],
)
def test_a_folder_is_code_whatever_it_is_packed_in(
    people: Personas, browse: Browse, name: str, content: bytes
) -> None:
    fields = _fields(code=SimpleUploadedFile(name, content))
    assert browse(people.bob).post(NEW, fields).status_code == 302
    assert Job.objects.get().snapshot.scripts == ["lib/model.py", "train.py"]


def test_a_notebook_runs_as_the_script_of_its_cells(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    content = _notebook("%matplotlib inline\nx = 2", "print(x)")
    fields = _fields(code=SimpleUploadedFile("explore.ipynb", content), script="")
    assert bob.post(NEW, fields).status_code == 302
    job = Job.objects.get()
    assert job.script == "explore.ipynb.py"
    names = _files_of(job.snapshot)
    assert names["explore.ipynb"] == content
    assert b"pass  # %matplotlib inline\nx = 2" in names["explore.ipynb.py"]
    packed = _zip({"nb/train.ipynb": content, "nb/broken.ipynb": b"no", "nb/lib.py": b""})
    fields = _fields(code=SimpleUploadedFile("nb.zip", packed), script="train.ipynb", procs="2")
    answer = bob.post(NEW, fields)
    assert "Use train.ipynb.py, the script of its cells" in fault_of(answer, "script")
    assert Snapshot.objects.order_by("pk").last().scripts == ["lib.py", "train.ipynb.py"]  # type: ignore[union-attr]


def _files_of(snapshot: Snapshot) -> dict[str, bytes]:
    blob = snapshot.file.blob
    pieces = blob_store().read(blob.key, start=0, length=blob.size_bytes)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        return {
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isfile()
        }


def test_the_same_code_is_kept_once_whatever_it_came_in(people: Personas, browse: Browse) -> None:
    files = {"train.py": SCRIPT}
    bob = browse(people.bob)
    for name, content in (
        ("a.zip", _zip(files)),
        ("b.tar", _tar(files, "w")),
        ("train.py", SCRIPT),
    ):
        bob.post(NEW, _fields(code=SimpleUploadedFile(name, content)))
    assert Job.objects.count() == 3
    assert Snapshot.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"hello", "neither a Python script, nor"),
        ("broken.ipynb", b"hello", "broken.ipynb is not a notebook"),
        ("shell.ipynb", _notebook("!pip install torch"), "only a notebook understands"),
        ("evil.zip", _zip({"../train.py": SCRIPT}), "points outside its folder"),
        ("broken.zip", b"PK\x03\x04 and nothing", "cannot be read"),
    ],
)
def test_bad_code_is_refused_beside_its_field_and_nothing_is_lost(
    people: Personas, browse: Browse, name: str, content: bytes, message: str
) -> None:
    fields = _fields(code=SimpleUploadedFile(name, content), params="lr=0.7", script="")
    answer = browse(people.bob).post(NEW, fields)
    assert answer.status_code == 422
    assert message in fault_of(answer, "snapshot")
    assert "lr=0.7" in html_of(answer)
    assert not Job.objects.exists()


def test_code_survives_the_refusal_of_another_field(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    fields = _fields(code=SimpleUploadedFile("train.py", SCRIPT), nodes="0")
    answer = bob.post(NEW, fields)
    assert answer.status_code == 422
    assert "greater than or equal to 1" in fault_of(answer, "nodes")
    digest = Snapshot.objects.get().digest
    assert f'<option value="{digest}" selected>' in html_of(answer)
    assert bob.post(NEW, _fields(snapshot=digest)).status_code == 302


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"script": "other.py"}, "script", "The snapshot has no other.py"),
        ({"tier": "none"}, "tier", "There is no tier none"),
        ({"tier": ""}, "tier", "Choose a tier"),
        ({"strategy": "magic"}, "strategy", "is not a strategy"),
        ({"strategy": "tensor=3", "procs": "2"}, "strategy", "divisible by 3"),
        ({"args": "'open"}, "args", "quotation mark"),
        ({"params": "no sign"}, "params", "must have the form name=value"),
        ({"params": "1bad=2"}, "params", "expected a letter, then letters, digits"),
        ({"requirements": "-e ."}, "requirements", "Line 1 of the requirements"),
        ({"max_attempts": "0"}, "max_attempts", "greater than or equal to 1"),
        ({"snapshot": "f" * 64}, "snapshot", "no such snapshot"),
        ({"snapshot": ""}, "snapshot", "Choose a file or a folder"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_before_anything_queues(
    people: Personas, browse: Browse, changes: dict[str, str], field: str, message: str
) -> None:
    digest = take_code(people.vision, people.bob)
    answer = browse(people.bob).post(NEW, _fields(snapshot=digest) | changes)
    assert answer.status_code == 422
    assert message in fault_of(answer, field)
    assert not Workload.objects.exists()


def test_a_tier_that_can_never_fit_is_refused_with_the_reason(
    people: Personas, browse: Browse
) -> None:
    digest = take_code(people.vision, people.bob)
    answer = browse(people.bob).post(NEW, _fields(snapshot=digest, tier="huge"))
    assert answer.status_code == 422
    assert not Workload.objects.exists()


def test_the_code_of_another_project_is_no_code_here(people: Personas, browse: Browse) -> None:
    theirs = take_code(people.other, people.charlie)
    bob = browse(people.bob)
    assert theirs not in html_of(bob.get(NEW))
    answer = bob.post(NEW, _fields(snapshot=theirs))
    assert "no such snapshot" in fault_of(answer, "snapshot")


def test_the_price_and_the_wait_are_told_before_anything_is_submitted(
    people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    quoted = text_of(bob.post("/p/vision/jobs/quote", _fields(nodes="2", max_hours="10")))
    assert "$7.20 an hour" in quoted
    assert "At most $72.00 in total" in quoted
    assert "It can start immediately" in quoted
    make_job(people.vision, people.bob)
    assert "It would wait" in text_of(bob.post("/p/vision/jobs/quote", _fields()))
    never = text_of(bob.post("/p/vision/jobs/quote", _fields(tier="huge")))
    assert "It cannot run" in never
    assert "is not a strategy" in text_of(
        bob.post("/p/vision/jobs/quote", _fields(strategy="magic"))
    )
    assert Workload.objects.count() == 1


def test_without_scripts_a_button_tells_the_price_and_submits_nothing(
    people: Personas, browse: Browse
) -> None:
    fields = _fields(code=SimpleUploadedFile("train.py", SCRIPT), do="quote")
    answer = browse(people.bob).post(NEW, fields)
    assert answer.status_code == 200
    assert "$3.60 an hour" in text_of(answer)
    assert Snapshot.objects.get().digest in html_of(answer)
    assert not Workload.objects.exists()


def test_tiers_are_offered_with_price_and_what_is_free_now(
    people: Personas, browse: Browse
) -> None:
    page = text_of(browse(people.bob).get(NEW))
    assert "small 1 CPU and 1 GiB $3.60 /h 2 free now" in page
    assert "$9.00 /h none free now no ready node fits it" in page


def test_a_tier_in_use_says_why_a_job_would_wait(people: Personas, browse: Browse) -> None:
    make_tier("both", cpus=2, nano_usd_per_hour=1_000_000)
    job = make_job(people.vision, people.bob, tier="both")
    run_job(job)
    page = text_of(browse(people.bob).get(NEW))
    assert "none free now waits for running work to end" in page
    assert "$9.00 /h none free now no ready node fits it" in page


def test_a_clone_is_the_same_form_filled_in_and_keeps_its_origin(
    people: Personas, browse: Browse
) -> None:
    git = {"commit": "a" * 40, "branch": "main"}
    job = make_job(
        people.vision,
        people.alice,
        args=["--a b"],
        params={"lr": "0.1"},
        strategy="ddp",
        procs=2,
        max_hours=2,
        name="original",
        git=git,
    )
    bob = browse(people.bob)
    page = bob.get(f"{NEW}?from={job.pk}")
    assert "Clone original" in text_of(page)
    shown = form_of(page)
    fields = {name: shown[name].value() for name in shown.fields}
    filled = {name: "" if value is None else value for name, value in fields.items()}
    answer = bob.post(NEW, filled | {"params": "lr=0.3", "from": job.pk})
    assert answer.status_code == 302
    clone = Job.objects.exclude(pk=job.pk).get()
    assert clone.cloned_from == job
    assert clone.params == {"lr": "0.3"}
    assert (clone.args, clone.strategy) == (["--a b"], "ddp")
    assert clone.git is not None
    assert clone.git["commit"] == "a" * 40
    assert clone.workload.max_lifetime_s == 7200
    assert "clone of" in text_of(bob.get(f"/p/vision/jobs/{clone.pk}"))


def test_the_job_of_another_project_cannot_be_cloned(people: Personas, browse: Browse) -> None:
    theirs = make_job(people.other, people.charlie)
    assert browse(people.bob).get(f"{NEW}?from={theirs.pk}").status_code == 404


def test_scripts_send_a_file_as_the_body_and_get_its_digest(
    people: Personas, browse: Browse
) -> None:
    address = "/p/vision/jobs/code?name=train.py"
    octets = "application/octet-stream"
    bob = browse(people.bob)
    response = bob.post(address, data=SCRIPT, content_type=octets).json()
    assert response["scripts"] == ["train.py"]
    assert Snapshot.objects.get(project=people.vision).digest == response["digest"]
    refused = bob.post("/p/vision/jobs/code?name=x.txt", data=b"hello", content_type=octets)
    assert refused.status_code == 422
    assert "neither a Python script" in refused.json()["fault"]


def test_viewers_are_offered_no_form(people: Personas, browse: Browse) -> None:
    vera = browse(people.vera)
    assert vera.get(NEW).status_code == 403
    assert vera.post(NEW, _fields()).status_code == 403
    assert vera.post("/p/vision/jobs/quote", _fields()).status_code == 403


@pytest.mark.parametrize("word", STRATEGIES)
def test_every_strategy_the_form_explains_is_one(word: str) -> None:
    assert str(parse_strategy(word)).startswith(word.partition("=")[0])


def test_a_container_is_chosen_in_the_form_and_kept_by_the_clone(
    people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    fields = _fields(code=SimpleUploadedFile("train.py", SCRIPT), backend="docker")
    answer = bob.post(NEW, fields)
    assert answer.status_code == 422
    assert "No node offers the back end docker" in fault_of(answer, "backend")
    make_machine("docked", cpus=2, gib=8, backends=("docker", "process"))
    assert bob.post(NEW, fields).status_code == 302
    job = Job.objects.get()
    assert job.workload.backend == "docker"
    page = bob.get(f"/p/vision/jobs/{job.workload_id}")
    assert "Docker container" in text_of(page)
    clone = bob.get(f"{NEW}?from={job.workload_id}")
    assert '<option value="docker" selected>' in html_of(clone)


def test_a_clone_of_a_job_in_a_pool_runs_in_that_pool(people: Personas, browse: Browse) -> None:
    pool = create_pool(name="twin", engine="local", settings={})
    job = make_job(people.vision, people.bob)
    Workload.objects.filter(pk=job.pk).update(pool=pool)
    fields = _fields(snapshot=job.snapshot.digest, **{"from": job.pk})
    assert browse(people.bob).post(NEW, fields).status_code == 302
    assert Job.objects.latest("pk").workload.pool == pool


def test_a_preemptible_job_shows_both_prices_before_it_is_submitted(
    people: Personas, browse: Browse
) -> None:
    digest, bob = take_code(people.vision, people.bob), browse(people.bob)
    fields = _fields(snapshot=digest)
    priced = bob.post("/p/vision/jobs/quote", fields)
    assert "instead of" not in text_of(priced)
    fields["preemptible"] = "on"
    assert "$1.80 an hour, preemptible, instead of $3.60" in text_of(
        bob.post("/p/vision/jobs/quote", fields)
    )
    bob.post(NEW, fields)
    job = Workload.objects.get()
    assert job.is_preemptible
    assert form_of(bob.get(f"{NEW}?from={job.pk}"))["preemptible"].value() is True
