"""The agent API through its door: who may speak, what they are told, what they may send."""

from typing import Any

import pytest
from django.test import Client
from limits import RateLimitItemPerMinute
from pytest_django import Settings

from portal.accounts.services.secrets import write_secret
from portal.api.throttle import agent_throttle, api_throttle
from portal.compute.models import JoinToken, Node, Tier
from portal.compute.services.environments import use_environment
from portal.compute.services.node_registration import create_join_token
from portal.compute.services.nodes import remove_node
from portal.core import clock
from portal.storage.services import store_file
from portal.workloads.models import UsageSample, Workload
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.logs import MAX_APPEND_BYTES, log_of, logs_of, read_log
from portal.workloads.specs import spec_from
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    Machine,
    after,
    facts,
    finish,
    leases_of,
    make_machine,
    make_tier,
    report_of,
    run,
    submit,
    unix_ms,
)

# In pieces: nothing in the repository may name where packages come from.
OPTION = "--index" + "-url"
OCTETS = "application/octet-stream"


def join(secret: str, name: str, **changes: Any) -> Any:
    body = {"join_token": secret, "name": name, "facts": facts(**changes).model_dump()}
    return Client().post("/api/agent/v1/join", body, content_type="application/json")


def test_a_machine_joins_once_with_a_token(people: Personas) -> None:
    secret = create_join_token(by=people.root).secret
    answer = join(secret, "gpu-1", cpus=8, gib=32, gpus=2)
    assert answer.status_code == 201
    node = Node.objects.get()
    assert (node.name, node.cpu_millis, node.gpu_models) == ("gpu-1", 8000, ["H100", "H100"])
    assert json_of(answer)["node_token"].startswith("sln_")
    again = join(secret, "gpu-2")
    assert again.status_code == 401
    assert json_of(again)["code"] == "invalid_join_token"


def test_an_answer_that_was_lost_can_be_asked_for_again(people: Personas) -> None:
    secret = create_join_token(by=people.root).secret
    first, second = join(secret, "a"), join(secret, "a")
    assert json_of(first)["node_id"] == json_of(second)["node_id"]
    machine = Machine(Node.objects.get(), json_of(second)["node_token"], facts())
    assert machine.call("GET", "desired").status_code == 200
    machine.beat()
    assert join(secret, "a").status_code == 401  # the node lives: nobody takes its place


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a" * 49, "-a"])
def test_a_bad_name_of_a_node_is_refused(people: Personas, name: str) -> None:
    assert join(create_join_token(by=None).secret, name).status_code == 422


def test_a_token_for_one_name_joins_that_name_alone_and_may_take_its_place(
    people: Personas,
) -> None:
    old = make_machine("lab")
    assert join(create_join_token(by=None).secret, "lab").status_code == 409
    bound = create_join_token(by=None, node="lab").secret
    assert join(bound, "other").status_code == 401
    assert join(bound, "lab").status_code == 201
    assert Node.objects.count() == 1
    assert old.call("GET", "desired").status_code == 401


def test_an_expired_join_token_is_refused(people: Personas) -> None:
    secret = create_join_token(by=None).secret
    JoinToken.objects.update(expires_at=after(-1))
    assert join(secret, "late").status_code == 401


def test_the_first_node_makes_tiers_that_fit_it(people: Personas) -> None:
    join(create_join_token(by=None).secret, "laptop", cpus=2, gib=8)
    tiers = {tier.slug: tier for tier in Tier.objects.all()}
    assert set(tiers) == {"cpu-small", "cpu-large"}
    node = Node.objects.get()
    assert node.capacity.count_of(tiers["cpu-small"].amount) == 2
    assert node.capacity.count_of(tiers["cpu-large"].amount) == 1
    assert all(tier.nano_usd_per_hour > 0 for tier in tiers.values())
    join(create_join_token(by=None).secret, "desktop", cpus=64, gib=256)
    assert Tier.objects.count() == 2, "tiers are made from the first machine"
    join(create_join_token(by=None).secret, "server", cpus=64, gib=256, gpus=8)
    assert set(Tier.objects.filter(gpus__gt=0).values_list("slug", flat=True)) == {"gpu-1", "gpu-8"}


@pytest.mark.parametrize("cpus", [0.5, 1, 2, 3, 4, 7, 8, 12, 16, 64, 256])
@pytest.mark.parametrize("gib", [0.5, 3.7, 8, 31.2, 2000])
def test_a_machine_of_any_size_fits_two_small_tasks_and_one_large_one(
    people: Personas, cpus: float, gib: float
) -> None:
    join(create_join_token(by=None).secret, "machine", cpus=cpus, gib=gib)
    node = Node.objects.get()
    tiers = {tier.slug: tier.amount for tier in Tier.objects.all()}
    assert node.capacity.count_of(tiers["cpu-small"]) >= 2
    assert node.capacity.count_of(tiers["cpu-large"]) == 1
    assert all(node.capacity.covers(amount) for amount in tiers.values())
    assert len({(amount.cpu_millis, amount.memory_bytes) for amount in tiers.values()}) == len(
        tiers
    )


def test_a_machine_with_gpus_gets_tiers_for_one_and_for_all(people: Personas) -> None:
    join(create_join_token(by=None).secret, "server", cpus=64, gib=256, gpus=8)
    tiers = {tier.slug: tier.amount for tier in Tier.objects.all()}
    assert {"gpu-1", "gpu-8"} < set(tiers)
    assert Node.objects.get().capacity.count_of(tiers["gpu-1"]) == 8


@pytest.mark.parametrize("header", ["", "Bearer nonsense", "Bearer sln_" + "x" * 43, "Basic eA=="])
def test_nobody_speaks_without_a_node_token(people: Personas, header: str) -> None:
    make_machine()
    headers = {"Authorization": header} if header else {}
    for method, path in (
        ("GET", "desired"),
        ("POST", "heartbeat"),
        ("POST", "reports"),
        ("POST", "samples"),
        ("PUT", "logs/t/1/0?offset=0"),
        ("GET", "snapshots/x"),
        ("GET", "environments/x"),
        ("GET", "environments/x/archives/x"),
        ("POST", "environments/x/reports"),
    ):
        answer: Any = Client().generic(method, f"/api/agent/v1/{path}", headers=headers)
        assert answer.status_code == 401, path
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_persons_token_opens_nothing_here_and_a_nodes_nothing_there(people: Personas) -> None:
    machine = make_machine()
    person = Api.of(people.root)
    answer = Client().get(
        "/api/agent/v1/desired", headers={"Authorization": f"Bearer {person.token}"}
    )
    assert answer.status_code == 401
    assert Api(machine.secret).get("projects").status_code == 401


def test_a_removed_node_is_a_stranger(people: Personas) -> None:
    machine = make_machine()
    remove_node(node=machine.node)
    assert machine.call("GET", "desired").status_code == 401


def body_of_beat(**changes: Any) -> dict[str, Any]:
    return {
        "boot_id": "b",
        "facts": facts().model_dump(),
        "cpu_percent": 10,
        "memory_used_bytes": 1,
        "running": [],
    } | changes


def test_a_heartbeat_is_answered_with_what_to_fence(people: Personas) -> None:
    machine = make_machine()
    stray = {"task_id": "task_x", "epoch": 3}
    answer = machine.call("POST", "heartbeat", body_of_beat(running=[stray], cpu_percent=42))
    assert json_of(answer) == {"heartbeat_s": 10.0, "lease_s": 50.0, "fenced": [stray]}
    assert Node.objects.get().cpu_percent == 42


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu_percent": 101},
        {"memory_used_bytes": -1},
        {"memory_used_bytes": 2**62},
        {"facts": {}},
        {"facts": facts(gpus=1).model_dump() | {"gpus": []}},
        {"boot_id": "a\x00"},
        {"unknown": 1},
    ],
)
def test_a_hostile_heartbeat_is_refused_in_words(people: Personas, changes: dict[str, Any]) -> None:
    answer = make_machine().call("POST", "heartbeat", body_of_beat(**changes))
    assert answer.status_code == 422
    assert json_of(answer)["next_step"]


def test_an_agent_is_told_everything_a_task_needs(people: Personas) -> None:
    write_secret(project=people.vision, by=people.alice, name="DB_PASSWORD", value="hush")
    machine = make_machine(cpus=8, gpus=2)
    tier = make_tier(gpus=1)
    spec = spec_from(argv=("python", "train.py"), env={"LR": "0.1"}, persistent_key="run-7")
    job = submit(people.vision, people.bob, tier, nodes=2, procs=2, spec=spec)
    before = json_of(machine.call("GET", "desired"))
    run_passes()
    desired = json_of(machine.call("GET", f"desired?seen={before['version']}"))
    assert desired["version"] > before["version"]
    assert desired["prewarm"] == ["jupyterlab", "torch"]
    first, second = sorted(desired["tasks"], key=lambda task: task["index"])
    assert (first["action"], first["workload_id"], first["epoch"]) == ("start", job.pk, 1)
    assert second["spec"]["first_rank"] == 2
    assert second["spec"]["world_size"] == 4
    assert {tuple(task["spec"]["gpu_indices"]) for task in (first, second)} == {(0,), (1,)}
    assert first["spec"]["persistent_key"] == f"{people.vision.pk}/run-7"
    assert first["spec"]["warm"] == "torch"
    env = first["spec"]["env"]
    assert (env["LR"], env["DB_PASSWORD"]) == ("0.1", "hush")
    assert env["SLIPWAY_PROJECT"] == "vision"
    assert env["SLIPWAY_TOKEN"].startswith("slw_")


def test_secrets_reach_only_the_node_that_runs_the_task(people: Personas) -> None:
    write_secret(project=people.vision, by=people.alice, name="DB_PASSWORD", value="hush-hush")
    make_machine("runs", cpus=4)
    other = make_machine("other", cpus=8)
    submit(people.vision, people.bob, make_tier())
    run_passes()
    assert b"hush-hush" not in other.call("GET", "desired").content


def test_a_stop_carries_its_reason(people: Personas) -> None:
    machine = make_machine()
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    stop_workload(workload=job, by=people.bob)
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert (task["action"], task["stop_reason"], task["spec"]) == ("stop", "user", None)


def test_reports_are_taken_and_stale_ones_named(people: Personas) -> None:
    machine = make_machine()
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    (lease,) = leases_of(job)
    stale = report_of(lease, "running") | {"epoch": 7}
    answer = machine.call(
        "POST", "reports", {"reports": [report_of(lease, "running"), stale], "sent_unix_ms": 0}
    )
    report = {"task_id": lease.task_id, "epoch": 7}
    assert json_of(answer) == {"accepted": 1, "stale": [report]}


def _running(people: Personas, machine: Machine, **changes: Any) -> Workload:
    job = submit(people.vision, people.bob, make_tier(), **changes)
    run_passes()
    run(job)
    return job


def put_log(
    machine: Machine, job: Workload, offset: int, data: bytes, rank: int = 0, more: str = ""
) -> Any:
    lease = leases_of(job)[0]
    path = f"logs/{lease.task_id}/{lease.epoch}/{rank}?offset={offset}{more}"
    # Django's client drops the type of an empty body unless it is told as a header.
    return machine.call("PUT", path, data, content_type=OCTETS, **{"Content-Type": OCTETS})


def text_of(job: Workload, rank: int = 0) -> bytes:
    return b"".join(read_log(workload=job, attempt=1, rank=rank, start=0, length=10**9))


def test_logs_are_appended_by_offset_however_often_they_are_sent(people: Personas) -> None:
    machine = make_machine()
    job = _running(people, machine, procs=2)
    for offset, data, expected in (
        (0, b"hello ", 6),
        (0, b"hello ", 6),
        (3, b"lo world", 11),
        (50, b"too far", 11),
        (11, b"\x1b[1m!\xff", 17),
    ):
        answer = put_log(machine, job, offset, data)
        assert json_of(answer) == {"next_offset": expected}
    put_log(machine, job, 0, b"the other rank", rank=1)
    assert text_of(job) == b"hello world\x1b[1m!\xff"
    assert text_of(job, 1) == b"the other rank"
    assert [log.rank for log in logs_of(workload=job)] == [0, 1]


def test_a_log_is_complete_when_its_agent_says_so_which_may_be_after_the_task(
    people: Personas,
) -> None:
    machine = make_machine()
    job = _running(people, machine)

    def is_complete() -> bool:
        return log_of(workload=job, attempt=1, rank=0).is_complete

    put_log(machine, job, 0, b"hello ")
    finish(job)
    assert not is_complete()
    assert json_of(put_log(machine, job, 9, b"", more="&last=true")) == {"next_offset": 6}
    assert not is_complete()  # the portal misses something, and has said so
    assert json_of(put_log(machine, job, 6, b"bye")) == {"next_offset": 9}
    for _ in range(2):
        assert json_of(put_log(machine, job, 9, b"", more="&last=true")) == {"next_offset": 9}
    assert is_complete()


def test_a_log_whose_agent_died_is_not_waited_for_for_ever(people: Personas) -> None:
    machine = make_machine()
    job = _running(people, machine)
    finish(job)
    assert not log_of(workload=job, attempt=1, rank=0).is_complete
    with clock.frozen(after(31)):
        assert log_of(workload=job, attempt=1, rank=0).is_complete


def test_logs_of_what_was_given_up_are_refused_as_stale(people: Personas) -> None:
    machine = make_machine()
    job = _running(people, machine)
    with clock.frozen(after(100)):
        reconcile()
    answer = put_log(machine, job, 0, b"zombie")
    assert (answer.status_code, json_of(answer)["code"]) == (409, "stale_epoch")


def test_a_log_is_limited_and_belongs_to_its_node_and_ranks(people: Personas) -> None:
    machine, stranger = make_machine(), make_machine()
    job = _running(people, machine)
    lease = leases_of(job)[0]
    owner, other = (machine, stranger) if lease.node_id == machine.node.pk else (stranger, machine)
    assert put_log(other, job, 0, b"x").status_code == 409
    assert put_log(owner, job, 0, b"x", rank=1).status_code == 404
    assert put_log(owner, job, 0, b"x" * (MAX_APPEND_BYTES + 1)).status_code == 413
    assert put_log(owner, job, 2**60, b"x").status_code == 422
    path = f"logs/{lease.task_id}/1/0?offset=0"
    assert owner.call("PUT", path, b"x", content_type="text/plain").status_code == 415


def test_a_node_fetches_the_code_it_is_to_run_and_no_other(people: Personas) -> None:
    file = store_file(
        project=people.vision, by=people.bob, name="code.tar", chunks=[b"tar " * 1000]
    )
    digest = file.blob.sha256
    machine = make_machine()
    assert machine.call("GET", f"snapshots/{digest}").status_code == 404
    job = submit(people.vision, people.bob, make_tier(), snapshot=digest)
    run_passes()
    answer: Any = machine.call("GET", f"snapshots/{digest}")
    assert b"".join(answer.streaming_content) == b"tar " * 1000
    assert make_machine("other").call("GET", f"snapshots/{digest}").status_code == 404
    finish(job)
    assert machine.call("GET", f"snapshots/{digest}").status_code == 404


def test_a_snapshot_of_another_project_cannot_be_submitted(people: Personas) -> None:
    file = store_file(project=people.other, by=people.charlie, name="c.tar", chunks=[b"secret"])
    make_machine()
    with pytest.raises(Exception, match="no such snapshot in this project"):
        submit(people.vision, people.bob, make_tier(), snapshot=file.blob.sha256)


def test_an_environment_is_built_with_a_live_log_and_locked_by_the_first(
    people: Personas,
) -> None:
    environment = use_environment(
        project=people.vision, by=people.bob, requirements="Requests>=2\n# mine\n"
    )
    digest = environment.digest
    machine = make_machine()
    submit(people.vision, people.bob, make_tier(), environment=digest)
    run_passes()
    spec = json_of(machine.call("GET", f"environments/{digest}"))
    assert spec["requirements"] == "requests>=2"

    def send(**changes: Any) -> Any:
        body = {"state": "building", "log_offset": 0, "log": ""} | changes
        return machine.call("POST", f"environments/{digest}/reports", body)

    assert json_of(send(log="Collecting\n")) == {"next_offset": 11}
    assert json_of(send(log="Collecting\nDone\n")) == {"next_offset": 16}
    done = {"state": "ready", "size_bytes": 99, "locked": "requests==2.32.5"}
    send(**done, log_offset=16)
    send(state="building", log_offset=0)  # a late duplicate
    build = environment.builds.get()
    assert (build.state, build.size_bytes) == ("ready", 99)
    assert json_of(machine.call("GET", f"environments/{digest}"))["requirements"] == (
        "requests==2.32.5"
    )
    send(build=2, log="Again\n")
    build.refresh_from_db()
    assert (build.state, build.number) == ("building", 2)
    assert make_machine("x").call("GET", f"environments/{digest}").status_code == 404


def test_a_node_gets_the_secrets_of_indexes_for_tasks_of_the_project_alone(
    people: Personas, settings: Settings
) -> None:
    settings.SLIPWAY_PACKAGE_INDEXES = "https://packages.example.org"
    address = "https://ci:${ACME_TOKEN}@packages.example.org"
    for project, by, value in (
        (people.vision, people.alice, "of vision"),
        (people.other, people.charlie, "of other"),
    ):
        write_secret(project=project, by=by, name="ACME_TOKEN", value=value)
        write_secret(project=project, by=by, name="UNRELATED", value="secret")
        environment = use_environment(
            project=project,
            by=by,
            requirements=f"{OPTION} {address}\nacme",
        )
    machine = make_machine()
    submit(people.vision, people.bob, make_tier(), environment=environment.digest)
    run_passes()

    def spec(query: str) -> Any:
        return machine.call("GET", f"environments/{environment.digest}{query}")

    assert json_of(spec(f"?project={people.vision.pk}"))["secrets"] == {"ACME_TOKEN": "of vision"}
    assert json_of(spec(""))["secrets"] == {}
    assert spec(f"?project={people.other.pk}").status_code == 404
    assert spec("?project=%00").status_code in (404, 422)


def test_samples_are_kept_once(people: Personas) -> None:
    machine = make_machine()
    job = _running(people, machine)
    (lease,) = leases_of(job)
    sample = {
        "task_id": lease.task_id,
        "epoch": 1,
        "at_unix_ms": unix_ms(),
        "cpu_percent": 180.5,
        "memory_bytes": 5_000_000,
    }
    foreign = sample | {"task_id": "task_other"}
    for sent in (0, 5):
        body = {"samples": [sample, foreign], "sent_unix_ms": unix_ms() + sent}
        assert machine.call("POST", "samples", body).status_code == 204
    assert UsageSample.objects.get().cpu_percent == 180.5


def test_user_code_speaks_for_its_submitter_in_its_project_while_it_runs(
    people: Personas,
) -> None:
    machine = make_machine()
    job = _running(people, machine)
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    code = Api(task["spec"]["env"]["SLIPWAY_TOKEN"])
    assert json_of(code.get("whoami"))["user"]["email"] == "bob@example.org"
    assert [p["slug"] for p in json_of(code.get("projects"))["items"]] == ["vision"]
    assert code.get("projects/other").status_code == 404
    assert code.get("tokens").status_code == 403
    token = code.token or ""
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert Api(forged).get("whoami").status_code == 401
    finish(job)
    assert code.get("whoami").status_code == 401


def test_the_token_of_a_lost_attempt_is_dead(people: Personas) -> None:
    machine = make_machine()
    job = _running(people, machine, max_attempts=3)
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    code = Api(task["spec"]["env"]["SLIPWAY_TOKEN"])
    finish(job, "signal")
    run_passes()
    run(job)
    assert (job.state, job.epoch) == ("running", 2)
    assert code.get("whoami").status_code == 401


def test_agents_are_not_counted_as_the_people_of_their_address(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = make_machine()
    monkeypatch.setattr(api_throttle, "limit", RateLimitItemPerMinute(1))
    person = Api.of(people.bob)
    assert [person.get("whoami").status_code for _ in range(2)] == [200, 429]
    assert {machine.call("GET", "desired").status_code for _ in range(5)} == {200}
    strangers = [join("slj_" + "x" * 43, "x").status_code for _ in range(2)]
    assert strangers == [401, 429]


def test_an_agent_has_a_limit_of_its_own(people: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, other = make_machine(), make_machine()
    monkeypatch.setattr(agent_throttle, "limit", RateLimitItemPerMinute(2))
    answers = [machine.call("GET", "desired") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["Retry-After"]
    assert other.call("GET", "desired").status_code == 200
