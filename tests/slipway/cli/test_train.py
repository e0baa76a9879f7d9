"""`slipway train` and `slipway job` in a pipe, against a real server."""

import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.cli.exits import ExitCode
from tests.live import ROOT
from tests.slipway.cli.conftest import Cli
from tests.slipway.jobserver import PROJECT, Fault, TrainingServer, training_server, wait_until
from tests.slipway.snapshots.folders import make_repository

SAME_FACTS = {"started_at": "2026-11-20T12:00:00Z", "ended_at": "2026-11-20T12:00:42Z"}


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        yield job_server


@pytest.fixture
def here(cli: Cli, server: TrainingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The command in a repository of code, signed in by the environment."""
    make_repository(tmp_path / "code", {"train.py": "print(1)\n", "lib/a.py": "", ".env": "K=v"})
    monkeypatch.chdir(tmp_path / "code")
    monkeypatch.setenv("SLIPWAY_URL", server.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    monkeypatch.setenv("SLIPWAY_PROJECT", PROJECT)
    return cli


def live(server: TrainingServer, act: Callable[[], None], job_id: str = "wl_1") -> threading.Thread:
    """Act as soon as the job exists."""

    def run() -> None:
        wait_until(lambda: job_id in server.jobs)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_script_becomes_a_job_that_is_told_of(here: Cli, server: TrainingServer) -> None:
    ran = here(
        *("train", "train.py", "--nodes", "2", "--procs", "2", "--strategy", "zero2"),
        *("--tier", "cpu-small", "--param", "lr=0.1", "--param", "note=a=b", "--name", "first"),
        *("--max-attempts", "5", "--max-hours", "1.5", "--priority", "-3", "--", "--epochs", "3"),
    )
    assert ran.code == 0, ran.err
    fields = dict(ran.rows)
    assert fields["Job"] == "wl_1"
    assert fields["Page"] == f"{server.url}/p/{PROJECT}/jobs/wl_1"
    assert fields["Price"] == "$0.04 an hour"
    assert fields["Why"] == "waits for a free node"
    assert "Left out: .env looks like a secret." in ran.err
    assert "--include FILE" in ran.err
    body = server.bodies[0]
    with tarfile.open(fileobj=io.BytesIO(server.snapshots[body.pop("snapshot")])) as archive:
        assert archive.getnames() == ["lib/a.py", "train.py"]
    assert body.pop("git")["branch"] == "main"
    assert body == {
        "name": "first",
        "script": "train.py",
        "args": ["--epochs", "3"],
        "params": {"lr": "0.1", "note": "a=b"},
        "tier": "cpu-small",
        "nodes": 2,
        "procs": 2,
        "strategy": "zero2",
        "priority": -3,
        "max_attempts": 5,
        "max_hours": 1.5,
    }


def test_programs_get_an_id_or_a_document(here: Cli) -> None:
    assert here("train", "train.py", "-q").out == "wl_1\n"
    assert here("train", "train.py", "--json").document["workload"]["id"] == "wl_2"


def test_a_secret_travels_when_it_is_named(here: Cli, server: TrainingServer) -> None:
    assert here("train", "train.py", "--include", ".env", "-q").code == 0
    content = server.snapshots[server.bodies[0]["snapshot"]]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert ".env" in archive.getnames()


def test_the_code_of_another_folder_can_travel(
    here: Cli, server: TrainingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path / "code" / "lib")
    for script in ("a.py", "lib/a.py", str(tmp_path / "code" / "lib" / "a.py")):
        assert here("train", script, "--code", "..", "-q").code == 0
        assert server.bodies[-1]["script"] == "lib/a.py"
    assert here("train", "a.py", "-q").code == 0
    assert server.bodies[-1]["script"] == "a.py"


def test_a_quote_submits_and_sends_nothing(here: Cli, server: TrainingServer) -> None:
    ran = here("train", "train.py", "--quote")
    assert dict(ran.rows) == {
        "Price": "$0.08 an hour",
        "Expected": "no history yet",
        "Budget": "-",
        "Fits": "yes",
        "Would wait": "yes",
        "Why": "Every node that fits is busy.",
    }
    assert (server.jobs, server.snapshots) == ({}, {})
    assert here("train", "train.py", "--quote", "--json").document["would_wait"] is True


def test_packages_come_from_the_folder_or_from_what_is_asked_for(
    here: Cli, server: TrainingServer, tmp_path: Path
) -> None:
    (tmp_path / "code" / "requirements.txt").write_text("six\n")
    (tmp_path / "other.txt").write_text("attrs\n")
    server.packages = {"explanation": "1 package from requirements.txt.", "python": "3.12"}
    quote = dict(here("train", "train.py", "--quote", "--python", "3.12").rows)
    assert (quote["Packages"], quote["Python"]) == ("1 package from requirements.txt.", "3.12")
    assert len(server.snapshots) == 1, "the server reads the file"
    options: tuple[tuple[str, ...], ...] = (
        *((), ("-r", "requirements.txt"), ("-r", str(tmp_path / "other.txt"))),
        ("--no-requirements",),
    )
    for arguments in options:
        assert here("train", "train.py", *arguments, "-q").code == 0
    names = ("requirements", "requirements_file")
    assert [tuple(body.get(name) for name in names) for body in server.bodies[-4:]] == [
        (None, None),
        (None, "requirements.txt"),
        ("attrs", None),
        ("", None),
    ]
    assert here("train", "train.py", "-r", "requirements.txt", "--no-requirements").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.py"], 6, "There is no script none.py"),
        (["train.py", "--nodes", "0"], 2, "greater than or equal to 1"),
        (["train.py", "--param", "lr"], 2, "--param NAME=VALUE"),
        (["train.py", "--param", "not a name=1"], 6, "params"),
        (["train.py", "--requirements", "none.txt"], 6, "cannot be read"),
        (["train.py", "--max-mb", "3000"], 2, "less than or equal to 500"),
        (["train.py", "--include", "../x"], 6, "is not in the folder"),
        (["train.py", "--code", "nowhere"], 6, "There is no folder nowhere"),
        (["train.py", "--tier", "NO SUCH"], 6, "tier"),
    ],
)
def test_bad_input_gets_a_clear_error_before_anything_is_sent(
    here: Cli, server: TrainingServer, arguments: list[str], code: int, words: str
) -> None:
    ran = here("train", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Next step" in ran.err
    assert server.requests == []
    assert here("train", *arguments, "--json").problem["detail"]


def test_data_is_refused_with_the_largest_files_named(here: Cli, tmp_path: Path) -> None:
    with (tmp_path / "code" / "train.bin").open("wb") as file:
        file.truncate(300_000_000)
    ran = here("train", "train.py")
    assert ran.code == 6
    assert "· train.bin: 300 MB" in ran.err
    assert "echo 'train.bin' >> .slipwayignore" in ran.err


def test_what_the_server_refuses_is_told_as_it_says(here: Cli, server: TrainingServer) -> None:
    problem = {
        "type": "x",
        "title": "x",
        "status": 422,
        "detail": "No tier has 64 GPUs.",
        "code": "never_fits",
        "field": "tier",
        "next_step": "Choose gpu-8.",
    }
    server.refusal = (422, problem)
    ran = here("train", "train.py")
    assert ran.code == 6
    assert "No tier has 64 GPUs." in ran.err
    assert "Choose gpu-8." in ran.err


@pytest.mark.parametrize(
    ("state", "code"), [("succeeded", 0), ("failed", 8), ("stopped", 9), ("lost", 10)]
)
def test_watching_ends_with_the_outcome(
    here: Cli, server: TrainingServer, state: str, code: int
) -> None:
    def act() -> None:
        server.set(state="running", explanation="runs on n1", first_step_after_s=0.42)
        server.log(b"\x1b[32mgreen\x1b[0m\x1b[2J\n")
        server.log("two é\n".encode())
        wait_until(lambda: any("follow" in path for _, path, _ in server.requests))
        server.set(
            state=state,
            explanation=f"it has {state}",
            next_step="Look.",
            cost_nano_usd=10**9,
            **SAME_FACTS,
        )

    runner = live(server, act)
    ran = here("train", "train.py", "--watch")
    runner.join()
    assert ran.code == code
    assert ran.out == "green\ntwo é\n", "lines of the log alone, so that it can be piped on"
    assert f"wl_1  {server.url}/p/{PROJECT}/jobs/wl_1" in ran.err
    assert "$0.04 an hour; queued: waits for a free node" in ran.err
    assert f"{state}: it has {state}" in ran.err
    assert "Next step: Look." in ran.err
    assert "ran 42 s, cost $1.00" in ran.err


def test_ranks_are_told_apart(here: Cli, server: TrainingServer) -> None:
    def act() -> None:
        server.log(b"zero\n", rank=0)
        server.log(b"eleven\n", rank=11)
        server.set(state="succeeded")

    runner = live(server, act)
    ran = here("train", "train.py", "--nodes", "3", "--procs", "4", "--watch")
    runner.join()
    assert sorted(ran.out.splitlines()) == ["[ 0] zero", "[11] eleven"]


def test_programs_wait_for_the_end_in_silence(here: Cli, server: TrainingServer) -> None:
    runner = live(server, lambda: server.set(state="failed", reason="oom"))
    ran = here("train", "train.py", "--watch", "--json")
    runner.join()
    assert ran.code == ExitCode.JOB_FAILED
    assert ran.document["workload"]["reason"] == "oom"
    assert ran.err == ""
    runner = live(server, lambda: server.set("wl_2", state="succeeded"), "wl_2")
    ran = here("train", "train.py", "--watch", "-q")
    runner.join()
    assert (ran.code, ran.out, ran.err) == (0, "wl_2\n", "")


def test_a_watch_survives_a_server_that_restarts(here: Cli, server: TrainingServer) -> None:
    server.add_job()
    server.follow_faults = [Fault(cut_after_bytes=1500), Fault(status=503), Fault(status=503)]
    content = "".join(f"line {number}\n" for number in range(500))
    server.log(content.encode())
    server.set(state="succeeded")
    ran = here("job", "logs", "wl_1", "--follow")
    assert (ran.code, ran.out) == (0, content)


def test_jobs_are_listed_and_shown(here: Cli, server: TrainingServer) -> None:
    assert "slipway train SCRIPT" in here("job", "list").err
    server.add_job(state="running", step=12, nodes=2, procs=2, explanation="runs")
    ran = here("job", "list", "--state", "running", "--by", "alice@example.org")
    assert ran.rows[0] == [
        *("ID", "NAME", "STATE", "STEP", "TIER", "RANKS", "BY", "CREATED", "WHY")
    ]
    assert ran.rows[1][:6] == ["wl_1", "train", "running", "12", "cpu-small", "4"]
    assert "state=running&submitted_by=alice%40example.org" in server.requests[-1][1]
    assert here("job", "list", "--state", "asleep").code == 2
    fields = dict(here("job", "show", "wl_1").rows)
    assert (fields["Ranks"], fields["Cost"], fields["Script"]) == ("4 (2 x 2)", "$0.00", "train.py")
    assert fields["Pool"] == fields["Python"] == "-"
    server.set(pool="gpu")
    assert dict(here("job", "show", "wl_1").rows)["Pool"] == "gpu"
    assert here("job", "show", "wl_1", "--json").document["workload"]["id"] == "wl_1"
    assert here("job", "show", "nobody").code == 5


def test_a_log_is_shown_by_rank(here: Cli, server: TrainingServer) -> None:
    server.add_job(procs=2, log_ranks=[0, 1], attempt=2)
    server.log(b"old\n", attempt=1)
    server.log(b"zero \x1b]0;t\x07\n", attempt=2)
    server.log(b"one\nnot ended", rank=1, attempt=2)
    assert here("job", "logs", "wl_1").out == "[0] zero \n[1] one\n[1] not ended\n"
    assert here("job", "logs", "wl_1", "--rank", "1").out == "one\nnot ended\n"
    assert here("job", "logs", "wl_1", "--rank", "0", "--attempt", "1").out == "old\n"


def test_the_log_of_a_build_is_shown_when_it_failed_or_runs(
    here: Cli, server: TrainingServer, tmp_path: Path
) -> None:
    digest, path = "e" * 64, f"projects/{PROJECT}/environments/{'e' * 64}"
    job = server.add_job(state="failed", reason="environment_failed")
    job.document["workload"]["environment"] = digest
    build = {"node": "n1", "state": "failed", "changed_at": "2026-11-20T12:00:42Z"}
    environment = {
        "digest": digest,
        "python": "3.11",
        "requirements": "nosuch",
        "created_at": "2026-11-20T12:00:00Z",
        "builds": [build, build | {"node": "n2", "state": "ready"}],
    }
    server.answers[path] = environment
    server.build_logs["n1"] = b"$ uv pip compile\nno \x1b]0;t\x07nosuch\n"
    server.build_logs["n2"] = b"Ready: 3 MiB.\n"
    ran = here("job", "logs", "wl_1")
    assert ran.out == "$ uv pip compile\nno nosuch\n"
    assert "Build log of the environment on node n1 (failed):" in ran.err
    file = tmp_path / "build.log"
    assert here("job", "logs", "wl_1", "--download", str(file)).code == 0
    assert file.read_bytes() == server.build_logs["n1"]
    watched = here("job", "logs", "wl_1", "--follow")
    assert (watched.code, watched.out) == (int(ExitCode.JOB_FAILED), ran.out)

    server.set(state="succeeded", reason="completed")
    server.log(b"hello\n")
    assert here("job", "logs", "wl_1").out == "hello\n"
    assert here("job", "logs", "wl_1", "--build").out.endswith("Ready: 3 MiB.\n")

    server.set(state="starting", reason=None)
    environment["builds"] = [build | {"state": "building"}]
    assert here("job", "logs", "wl_1").out == ran.out + "hello\n"


def test_a_log_is_downloaded_byte_for_byte(
    here: Cli, server: TrainingServer, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 20_000
    server.add_job()
    server.log(content)
    server.log_faults = [Fault(cut_after_bytes=70_000)]
    file = tmp_path / "rank0.log"
    ran = here("job", "logs", "wl_1", "--download", str(file), "--json")
    assert ran.document == {"path": str(file), "rank": 0, "size_bytes": len(content)}
    assert file.read_bytes() == content
    assert here("job", "logs", "wl_1", "--download", str(file)).code == 2, "it would replace it"
    assert here("job", "logs", "wl_1", "--json").code == 2
    assert here("job", "logs", "wl_1", "--follow", "--json").code == 2
    ran = here("job", "logs", "wl_1", "--download", str(tmp_path / "none" / "x"))
    assert "Choose another file with --download" in ran.err


def test_a_job_is_cancelled_and_cloned_with_edits(
    here: Cli, server: TrainingServer, tmp_path: Path
) -> None:
    server.add_job(params={"lr": "0.1", "seed": "1", "old": "x"})
    ran = here("job", "cancel", "wl_1")
    assert ran.code == 0
    assert "wl_1 is stopped. Run it again: slipway job clone wl_1" in ran.err
    ran = here(
        *("job", "clone", "wl_1", "--param", "lr=0.2", "--without-param", "old", "--nodes", "2"),
        *("-q", "--", "--fast"),
    )
    assert ran.out == "wl_2\n"
    assert server.bodies[-1] == {
        "params": {"lr": "0.2", "seed": "1"},
        "nodes": 2,
        "args": ["--fast"],
    }
    (tmp_path / "code" / "train.py").write_text("print(2)\n")
    ran = here("job", "clone", "wl_1", "--code", ".", "--script", "lib/a.py")
    assert dict(ran.rows)["Job"] == "wl_3"
    body = server.bodies[-1]
    assert body["script"] == "lib/a.py"
    assert "+print(2)" in body["git"]["diff"]
    assert body["snapshot"] in server.snapshots
    assert here("job", "clone", "wl_1", "-q").out == "wl_4\n"
    assert server.bodies[-1] == {}


def test_the_story_and_the_checkpoints_are_told(here: Cli, server: TrainingServer) -> None:
    server.add_job()
    base = f"projects/{PROJECT}/jobs/wl_1"
    at = "2026-11-20T12:00:00Z"
    server.answers[f"{base}/events"] = {
        "items": [{"at": at, "attempt": 1, "kind": "started", "message": "n1 starts it"}],
        "next_cursor": None,
    }
    server.answers[f"{base}/checkpoints"] = [
        {"step": 500, "size_bytes": 12_345_678, "attempt": 1, "created_at": at}
    ]
    assert here("job", "events", "wl_1").rows[1][1:] == ["1", "started", "n1 starts it"]
    assert here("job", "checkpoints", "wl_1").rows[1][:2] == ["500", "12.3 MB"]
    assert here("job", "checkpoints", "wl_1", "-q").out == "500\n"


def test_the_page_of_a_job_is_opened(here: Cli, server: TrainingServer) -> None:
    server.add_job()
    page = f"{server.url}/p/{PROJECT}/jobs/wl_1"
    assert here("job", "open", "wl_1", "-q").out == f"{page}\n"
    assert here("job", "open", "wl_1", "--json").document == {"page": page}
    assert here("job", "open", "nobody").code == 5


def test_a_log_can_be_piped_into_something_that_stops_reading(
    here: Cli, server: TrainingServer
) -> None:
    server.add_job()
    server.log(b"line\n" * 200_000)
    server.set(state="succeeded")
    pipe = f"{sys.executable} -m slipway job logs wl_1 --follow | head -1"
    done = subprocess.run(
        ["/bin/bash", "-c", f"{pipe}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
    )
    assert (done.returncode, done.stdout) == (ExitCode.PIPE_CLOSED, "line\n"), done.stderr
    assert "Traceback" not in done.stderr
