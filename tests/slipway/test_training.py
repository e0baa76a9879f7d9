"""From a folder of code to a job, in one call, against a real server."""

import io
import re
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipway
from slipway import errors
from slipway.schemas.training import JobIn
from slipway.snapshots import take_snapshot
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server, wait_until
from tests.slipway.snapshots.folders import make_repository, write_tree

QUICK = slipway.Retries(attempts=2, first_wait_s=0.01)


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        yield job_server


@pytest.fixture
def client(server: TrainingServer) -> Iterator[slipway.Client]:
    with slipway.Client(server.url, "slp_x", retries=QUICK) as new_client:
        yield new_client


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of code, which is the folder one is in."""
    repository = make_repository(tmp_path / "code", {"train.py": "print(1)\n", "lib/a.py": ""})
    monkeypatch.chdir(repository)
    return repository


def test_one_call_makes_a_job_of_a_script(
    server: TrainingServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "requirements.txt").write_text("numpy==2.0\n")
    monkeypatch.setenv("SLIPWAY_URL", server.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    monkeypatch.setenv("SLIPWAY_PROJECT", PROJECT)
    job = slipway.train(
        "train.py",
        nodes=2,
        procs=2,
        strategy="ddp",
        params={"lr": 0.1, "epochs": 3},
        args=["--fast"],
        requirements="requirements.txt",
        name="first",
    )
    assert job.workload.id == "wl_1"
    body = JobIn.model_validate(server.bodies[0])
    assert (body.script, body.nodes, body.procs, body.strategy) == ("train.py", 2, 2, "ddp")
    assert body.params == {"lr": "0.1", "epochs": "3"}
    assert (body.args, body.requirements, body.name) == (["--fast"], None, "first")
    assert body.requirements_file == "requirements.txt"
    assert body.git is not None
    assert body.git.branch == "main"
    with tarfile.open(fileobj=io.BytesIO(server.snapshots[body.snapshot])) as archive:
        assert archive.getnames() == ["lib/a.py", "requirements.txt", "train.py"]


def test_a_job_is_watched_until_it_ends(
    server: TrainingServer,
    client: slipway.Client,
    code: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run() -> None:
        wait_until(lambda: "wl_1" in server.jobs)
        server.set(state="running", explanation="runs on n1", first_step_after_s=0.4, step=1)
        server.log(b"\x1b]0;owned\x07epoch 1\n", rank=0)
        server.log(b"rank one\nno end", rank=1)
        server.set(
            state="failed",
            explanation="exit 1",
            next_step="Look at the last lines.",
            cost_nano_usd=12_000_000,
            started_at="2026-11-20T12:00:00Z",
            ended_at="2026-11-20T12:01:01Z",
        )

    runner = threading.Thread(target=run)
    runner.start()
    ended = slipway.train("train.py", procs=2, project=PROJECT, client=client, watch=True)
    runner.join()
    assert ended.workload.state == "failed"
    output = capsys.readouterr().out
    assert output.startswith(f"· {server.url}/p/vision/jobs/wl_1  ($0.04 an hour)\n")
    assert "[0] epoch 1\n" in output
    assert "[1] rank one\n" in output
    assert "[1] no end\n" in output
    assert "· failed: exit 1\n" in output
    assert "· Next step: Look at the last lines.\n" in output
    assert "· ran 1 min 1 s, step 1, cost $0.012" in output
    assert "\x1b" not in output


def test_what_can_never_run_is_refused_before_anything_is_sent(
    server: TrainingServer, client: slipway.Client, code: Path
) -> None:
    def refuse(match: str, **wrong: object) -> None:
        with pytest.raises(errors.InvalidInput, match=match):
            slipway.train(**{"script": "train.py", "project": PROJECT, "client": client} | wrong)  # type: ignore[arg-type]

    refuse("There is no script", script="none.py")
    refuse("nodes cannot be accepted", nodes=0)
    refuse("procs cannot be accepted", procs=257)
    refuse("params", params={"not a name": 1})
    refuse("tier cannot be accepted", tier="No Such")
    refuse("cannot be read: No such file", requirements="none.txt")
    refuse("There is no folder", folder="none")
    with pytest.raises(errors.TooLarge):
        slipway.train("train.py", project=PROJECT, client=client, limit_bytes=5)
    (code.parent / "other.txt").write_bytes(b"\xff")
    refuse("it is not UTF-8", requirements=code.parent / "other.txt")
    assert server.requests == []


def test_without_a_project_the_next_step_is_told(
    client: slipway.Client, code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "nobody"))
    monkeypatch.delenv("SLIPWAY_PROJECT", raising=False)
    with pytest.raises(errors.InvalidInput, match="No project is named"):
        slipway.train("train.py", client=client)


def test_code_the_server_has_is_not_sent_again(
    server: TrainingServer, client: slipway.Client, tmp_path: Path
) -> None:
    write_tree(tmp_path / "big", {"weights.bin": b"x" * 3_000_000})
    sent: list[int] = []
    with take_snapshot(tmp_path / "big") as snapshot:
        for _ in range(2):
            out = client.snapshots.upload(snapshot, project=PROJECT, progress=sent.append)
            assert out.digest == snapshot.digest
        assert server.paths("POST") == ["/api/v1/projects/vision/snapshots"]
        assert sent == sorted(sent)
        assert sent[-1] == snapshot.size_bytes
        with client.snapshots.download(snapshot.digest, project=PROJECT) as archive:
            assert b"".join(archive) == b"".join(snapshot.pieces())
    assert not client.snapshots.has("0" * 64, project=PROJECT)


def test_a_clone_changes_only_what_is_given(server: TrainingServer, client: slipway.Client) -> None:
    server.add_job()
    clone = client.jobs.clone("wl_1", project=PROJECT, params={"lr": 0.2}, nodes=2)
    assert clone.cloned_from == "wl_1"
    assert server.bodies[-1] == {"params": {"lr": "0.2"}, "nodes": 2}


def test_jobs_are_listed_quoted_and_cancelled(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    assert [job.workload.id for job in client.jobs.list(project=PROJECT, state="queued")] == [
        "wl_1"
    ]
    assert server.requests[-1][1] == "/api/v1/projects/vision/jobs?state=queued"
    quote = client.jobs.quote(JobIn(snapshot="0" * 64, script="a.py"), project=PROJECT)
    assert (quote.nano_usd_per_hour, quote.would_wait) == (80_000_000, True)
    assert client.jobs.cancel("wl_1", project=PROJECT).workload.state == "stopped"
    base = f"projects/{PROJECT}/jobs/wl_1"
    server.answers[f"{base}/checkpoints"] = [
        {"step": 5, "size_bytes": 10, "attempt": 1, "created_at": "2026-11-20T12:00:00Z"}
    ]
    server.answers[f"{base}/samples"] = [{"nonsense": 1}]
    assert [checkpoint.step for checkpoint in client.jobs.checkpoints("wl_1", project=PROJECT)] == [
        5
    ]
    with pytest.raises(errors.UnexpectedAnswer, match=re.escape("0.at, 0.cpu_percent")):
        client.jobs.samples("wl_1", project=PROJECT)
