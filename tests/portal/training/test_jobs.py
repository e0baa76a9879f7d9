"""Jobs through the REST API: submitted, shown, listed, cancelled, repeated."""

from datetime import timedelta
from typing import Any

import pytest

from portal.compute.models import Node
from portal.compute.services.tiers import change_tier
from portal.core import clock
from portal.training.models import Job
from portal.workloads.models import UsageSample
from portal.workloads.scheduling import run_passes
from portal.workloads.services.logs import append_log
from slipway.schemas.base import NEXT_CURSOR
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import (
    CODE,
    digest_of,
    made_job,
    place,
    send_snapshot,
    submit,
    take_code,
    tar_of,
    workload_of,
)
from tests.portal.workloads.machines import (
    Machine,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    send_report,
)

pytestmark = pytest.mark.postgres

GIT = {
    "commit": "a" * 40,
    "branch": "main",
    "remote": "https://example.org/code.git",
    "is_dirty": True,
    "diff": "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-a\n+b\r\n",
}


def test_code_goes_up_once_and_comes_down_as_it_was(bob: Api, people: Personas) -> None:
    content = tar_of(CODE)
    first = send_snapshot(bob, content, X_Slipway_Sha256=digest_of(content))
    again = send_snapshot(bob, content)
    assert first.status_code == again.status_code == 201
    assert json_of(first) == json_of(again)
    assert json_of(first) == {
        "digest": digest_of(content),
        "size_bytes": len(content),
        "files": 3,
    }
    down: Any = Api.of(people.vera).get(f"projects/vision/snapshots/{digest_of(content)}")
    assert down.getvalue() == content
    assert down.headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize("field", ["persistent_key", "personal_key"])
def test_nobody_chooses_the_folders_of_a_job(
    people: Personas, bob: Api, machine: Machine, field: str
) -> None:
    key = f"person-{people.alice.pk}"
    assert submit(bob, **{field: key}).status_code == 422
    workload = workload_of(made_job(bob))
    run_passes()
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert task["spec"]["persistent_key"] == f"{people.vision.pk}/{workload.pk}"
    assert task["spec"]["personal_key"] is None


def test_a_job_shows_exactly_what_was_submitted(bob: Api, machine: Machine) -> None:
    job = made_job(
        bob,
        name="line",
        args=["--quick"],
        params={"lr": "0.1", "name": "näme"},
        nodes=2,
        procs=2,
        strategy="fsdp",
        requirements="NumPy==2.3.0\n",
        git=GIT,
        priority=5,
        max_attempts=2,
        max_hours=1.5,
    )
    assert job["workload"]["id"].startswith("wl_")
    assert job["workload"]["state"] == "queued"
    assert job["workload"]["explanation"].startswith("Waiting")
    assert (job["workload"]["nodes"], job["workload"]["procs"]) == (2, 2)
    assert job["workload"]["submitted_by"] == "bob@example.org"
    assert (job["args"], job["params"]) == (["--quick"], {"lr": "0.1", "name": "näme"})
    assert job["git"] == GIT
    assert job["strategy"] == "fsdp"
    assert len(job["environment"]) == 64
    assert job["nano_usd_per_hour"] == 7_200_000_000
    assert job["cost_nano_usd"] == 0
    assert (job["step"], job["resumable_step"], job["log_ranks"]) == (None, None, [])
    assert json_of(bob.get(f"projects/vision/jobs/{job['workload']['id']}")) == job
    stored = Job.objects.get().workload
    assert stored.spec["argv"] == ["python", "train.py", "--quick", "--lr=0.1", "--name=näme"]
    assert (stored.max_lifetime_s, stored.max_attempts, stored.priority) == (5400, 2, 5)


def test_the_machine_that_runs_a_job_gets_its_code_and_what_it_should_run(
    bob: Api, machine: Machine, people: Personas
) -> None:
    other = make_machine("spare")
    job = made_job(bob, params={"lr": "0.1"}, strategy="ddp", procs=2)
    digest = job["snapshot"]["digest"]
    assert machine.call("GET", f"snapshots/{digest}").status_code == 404
    workload = place(job)
    runner, idle = (
        (machine, other)
        if leases_of(workload)[0].node == machine.node
        else (
            other,
            machine,
        )
    )
    code: Any = runner.call("GET", f"snapshots/{digest}")
    assert code.getvalue() == tar_of(CODE)
    assert idle.call("GET", f"snapshots/{digest}").status_code == 404
    task = json_of(runner.call("GET", "desired"))["tasks"][0]["spec"]
    assert task["snapshot"] == digest
    assert task["argv"] == ["python", "train.py", "--lr=0.1"]
    assert task["env"]["SLIPWAY_PARAMS"] == '{"lr": "0.1"}'
    assert task["env"]["SLIPWAY_STRATEGY"] == "ddp"
    assert task["env"]["SLIPWAY_WORKLOAD"] == job["workload"]["id"]
    finish(workload)
    assert runner.call("GET", f"snapshots/{digest}").status_code == 404


def test_a_job_for_containers_waits_for_a_node_that_has_them(bob: Api, machine: Machine) -> None:
    take_code(bob)
    body = {"script": "train.py", "snapshot": "0" * 64, "tier": "small", "backend": "docker"}
    quote = json_of(bob.post("projects/vision/jobs/quote", body))
    assert not quote["can_ever_run"]
    assert "No node offers the back end docker; available: process." in quote["explanation"]
    docked = make_machine("docked", cpus=1, backends=("docker", "process"))
    apart = json_of(submit(bob, backend="docker", nodes=2))
    assert (apart["code"], apart["field"]) == ("one_node_only", "nodes")
    job = made_job(bob, backend="docker")
    assert job["backend"] == "docker"
    clone = json_of(bob.post(f"projects/vision/jobs/{job['workload']['id']}/clone", {}))
    assert clone["backend"] == "docker"
    workload = place(job)
    assert leases_of(workload)[0].node == docked.node
    assert json_of(docked.call("GET", "desired"))["tasks"][0]["spec"]["backend"] == "docker"
    again = {"backend": "process"}
    changed = json_of(bob.post(f"projects/vision/jobs/{job['workload']['id']}/clone", again))
    assert changed["backend"] == "process"
    Node.objects.filter(pk=docked.node.pk).update(backends=["process"])
    path = f"projects/vision/jobs/{clone['workload']['id']}"
    finish(workload)
    explanation = json_of(bob.get(path))["workload"]["explanation"]
    assert "it needs the back end docker, and no node offers it" in explanation


@pytest.mark.thorough
def test_jobs_are_listed_newest_first_in_pages_and_filtered(
    bob: Api, machine: Machine, people: Personas
) -> None:
    make_tier("large", cpus=2)
    first = made_job(bob, name="first")
    second = made_job(Api.of(people.alice), name="second", tier="large")
    third = made_job(bob, name="third", script="lib/model.py")
    bob.post(f"projects/vision/jobs/{first['workload']['id']}/cancel")

    def ids(query: str) -> list[str]:
        return [
            job["workload"]["name"]
            for job in json_of(bob.get(f"projects/vision/jobs?{query}"))["items"]
        ]

    assert ids("") == ["third", "second", "first"]
    assert ids("state=stopped") == ["first"]
    assert ids("q=model.py") == ["third"]
    assert ids("q=SECO") == ["second"]
    assert ids("tier=large") == ["second"]
    assert ids("submitted_by=Bob@example.org&state=queued") == ["third"]
    page = json_of(bob.get("projects/vision/jobs?limit=2"))
    rest = json_of(bob.get(f"projects/vision/jobs?limit=2&cursor={page['next_cursor']}"))
    assert [j["workload"]["id"] for j in page["items"] + rest["items"]] == [
        job["workload"]["id"] for job in (third, second, first)
    ]
    assert bob.get("projects/vision/jobs?state=asleep").status_code == 422


def test_a_quote_needs_no_code_and_queues_nothing(bob: Api, machine: Machine) -> None:
    body = {"script": "train.py", "snapshot": "0" * 64, "tier": "small", "nodes": 2}
    quote = json_of(bob.post("projects/vision/jobs/quote", body))
    assert quote == {
        "nano_usd_per_hour": 7_200_000_000,
        "full_nano_usd_per_hour": 7_200_000_000,
        "can_ever_run": True,
        "would_wait": False,
        "explanation": "It can start immediately.",
        "expected": None,
        "budgets": [],
        "set_aside_nano_usd": 120_000_000,
        "files": "All files that the job writes in its working folder, up to 2 GB for each node, "
        "are kept as artifacts of its run.",
        "packages": None,
    }
    quote = json_of(bob.post("projects/vision/jobs/quote", body | {"nodes": 5}))
    assert (quote["can_ever_run"], quote["would_wait"]) == (False, True)
    assert "can never fit 5 tasks" in quote["explanation"]
    assert not Job.objects.exists()
    made_job(bob)
    quote = json_of(bob.post("projects/vision/jobs/quote", body))
    assert quote["explanation"] == "1 of this project waits ahead of it."
    known = body | {"snapshot": take_code(bob), "script": "gone.py"}
    assert json_of(bob.post("projects/vision/jobs/quote", known))["code"] == "no_such_script"


def test_the_cost_is_what_the_leases_cost_to_the_nano_dollar(bob: Api, machine: Machine) -> None:
    job = made_job(bob, nodes=2)
    begun = clock.now()
    with clock.frozen(begun):
        workload = place(job)
    path = f"projects/vision/jobs/{workload.pk}"
    with clock.frozen(begun + timedelta(seconds=10)):
        assert json_of(bob.get(path))["cost_nano_usd"] == 2 * 10_000_000
        machine.beat(running=[])
        for lease in leases_of(workload):
            send_report(lease, "running", 1)
            send_report(lease, "progress", 2, step=4 + lease.index)
    with clock.frozen(begun + timedelta(seconds=15)):
        shown = json_of(bob.get(path))
        assert shown["cost_nano_usd"] == 2 * 15_000_000
        assert shown["step"] == 4
        assert shown["first_step_after_s"] == pytest.approx(
            (begun + timedelta(seconds=10) - workload.created_at).total_seconds(), abs=0.002
        )
        finish(workload)
    with clock.frozen(begun + timedelta(seconds=20)):
        change_tier(tier=workload.tier, nano_usd_per_hour=1)
    ended = json_of(bob.get(path))
    assert ended["workload"]["state"] == "succeeded"
    assert ended["cost_nano_usd"] == 2 * 15_000_000
    assert ended["nano_usd_per_hour"] == 7_200_000_000


def test_a_clone_is_the_same_again_with_what_is_given_changed(bob: Api, machine: Machine) -> None:
    original = made_job(
        bob,
        name="line",
        args=["--quick"],
        params={"lr": "0.1"},
        nodes=2,
        procs=2,
        strategy="zero3",
        requirements="numpy==2.3.0",
        git=GIT,
        priority=5,
        max_attempts=7,
        max_hours=0.7,
        hang_after_minutes=3,
    )
    path = f"projects/vision/jobs/{original['workload']['id']}/clone"
    same = json_of(bob.post(path, {}))
    own_fields = ("id", "created_at", "explanation", "queue_position")
    for job in (original, same):
        for name in own_fields:
            job["workload"].pop(name)
    assert same.pop("cloned_from") == workload_id_in(path)
    original.pop("cloned_from")
    assert same == original
    rows = list(Job.objects.select_related("workload").order_by("pk"))
    columns = ("spec", "max_lifetime_s", "max_attempts", "priority", "environment", "snapshot")
    assert [getattr(rows[0].workload, name) for name in columns] == [
        getattr(rows[1].workload, name) for name in columns
    ]
    digest = take_code(bob, CODE | {"train.py": b"print('changed')\n"})
    changed = json_of(
        bob.post(path, {"params": {"lr": "0.2"}, "nodes": 1, "snapshot": digest, "name": "two"})
    )
    assert (changed["params"], changed["workload"]["nodes"]) == ({"lr": "0.2"}, 1)
    assert changed["git"] is None
    assert changed["strategy"] == "zero3"
    assert json_of(bob.post(path, {"strategy": "nonsense"}))["field"] == "strategy"


def workload_id_in(path: str) -> str:
    return path.split("/")[3]


def test_default_names_of_long_scripts_stay_apart(bob: Api, machine: Machine) -> None:
    scripts = [f"{'experiment_' * 11}{letter}.py" for letter in "ab"]
    snapshot = take_code(bob, dict.fromkeys(scripts, b"print()\n"))
    names = set()
    for script in scripts:
        answer = submit(bob, script=script, snapshot=snapshot)
        assert answer.status_code == 201, answer.content
        names.add(json_of(answer)["workload"]["name"])
    assert len(names) == 2
    assert all(len(name) <= 100 and "the beginning of 125 characters" in name for name in names)


def test_cancelling_twice_is_as_good_as_once(bob: Api, machine: Machine) -> None:
    waiting, running = made_job(bob), made_job(bob)
    workload = workload_of(waiting)
    for _ in range(2):
        ended = json_of(bob.post(f"projects/vision/jobs/{workload.pk}/cancel"))
        assert (ended["workload"]["state"], ended["workload"]["reason"]) == ("stopped", "user")
    placed = place(running)
    run(placed)
    stopping = json_of(bob.post(f"projects/vision/jobs/{placed.pk}/cancel"))
    assert stopping["workload"]["state"] == "stopping"
    finish(placed, "user")
    story = json_of(bob.get(f"projects/vision/jobs/{placed.pk}/events"))["items"]
    assert [line["kind"] for line in story][:2] == ["stopped", "task_ended"]
    assert story[-1]["message"] == "Submitted by Bob."


def test_a_log_is_read_in_ranges_and_says_where_they_stand(bob: Api, machine: Machine) -> None:
    job = made_job(bob, procs=2)
    path = f"projects/vision/jobs/{job['workload']['id']}/logs"
    before: Any = bob.get(path)
    assert (before.getvalue(), before.headers["X-Log-Size"]) == (b"", "0")
    workload = place(job)
    lease = leases_of(workload)[0]
    content = b"\xff\x00 raw bytes \xe2\x82"
    append_log(node=lease.node, task_id=lease.task_id, epoch=1, rank=1, offset=0, pieces=[content])
    answer: Any = bob.get(f"{path}?rank=1&offset=2&limit=5")
    assert answer.getvalue() == content[2:7]
    headers = {
        name: answer.headers[name] for name in ("X-Log-Attempt", "X-Log-Size", "X-Log-Offset")
    }
    assert headers == {"X-Log-Attempt": "1", "X-Log-Size": str(len(content)), "X-Log-Offset": "2"}
    assert answer.headers["X-Log-Complete"] == "false"
    beyond: Any = bob.get(f"{path}?rank=1&offset=999")
    assert beyond.getvalue() == b""
    assert bob.get(f"{path}?attempt=2").status_code == 404
    assert json_of(bob.get(f"{path}?rank=2"))["code"] == "no_such_rank"
    assert bob.get(f"{path}?limit=4194305").status_code == 422
    assert json_of(bob.get(path.removesuffix("/logs")))["log_ranks"] == [0, 1]


def test_samples_of_the_present_attempt_are_listed_oldest_first(bob: Api, machine: Machine) -> None:
    workload = place(made_job(bob))
    lease = leases_of(workload)[0]
    for second in (2, 1):
        UsageSample.objects.create(
            lease=lease,
            measured_ms=second,
            at=clock.now() + timedelta(seconds=second),
            cpu_percent=second,
            memory_bytes=1,
        )
    parts = bob.get(f"projects/vision/jobs/{workload.pk}/samples?limit=1")
    rest = parts.headers[NEXT_CURSOR]
    samples = json_of(parts)
    samples += json_of(bob.get(f"projects/vision/jobs/{workload.pk}/samples?cursor={rest}"))
    assert [(sample["task"], sample["cpu_percent"]) for sample in samples] == [(0, 1.0), (0, 2.0)]


def test_the_same_key_submits_once(bob: Api, machine: Machine) -> None:
    take_code(bob)
    body = {"script": "train.py", "tier": "small", "snapshot": digest_of(tar_of(CODE))}
    answers = [bob.post("projects/vision/jobs", body, key="once") for _ in range(3)]
    assert len({json_of(answer)["workload"]["id"] for answer in answers}) == 1
    assert Job.objects.count() == 1


def test_a_viewer_sees_and_does_not_run(people: Personas, bob: Api, machine: Machine) -> None:
    job = made_job(bob)
    vera, path = Api.of(people.vera), f"projects/vision/jobs/{job['workload']['id']}"
    assert vera.get(path).status_code == 200
    assert submit(vera).status_code == 403
    assert vera.post(f"{path}/cancel").status_code == 403
    assert vera.post(f"{path}/clone", {}).status_code == 403
    assert send_snapshot(vera, tar_of(CODE)).status_code == 403
    for stranger in (people.charlie, people.root):
        assert Api.of(stranger).get(path).status_code == 404


def test_without_a_tier_a_job_gets_none_that_is_made_for_replicas(
    bob: Api, machine: Machine
) -> None:
    make_tier("replica", cpus=0.1, gib=0.25, nano_usd_per_hour=1)
    make_tier("large", cpus=4, nano_usd_per_hour=9_000_000_000)
    take_code(bob)
    assert json_of(submit(bob, tier=None))["workload"]["tier"] == "cpu-small"
