"""Optuna studies through `slipway.optuna_storage()`, against a real portal."""

import json
import pickle
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.trial import TrialState

import slipway
from slipway import errors
from tests.live import LivePortal

ROOT = Path(__file__).resolve().parents[2]
# A script as it runs in a job: server, token and project come from the environment.
_SCRIPT = """
import sys
import optuna
import slipway

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    kind = trial.suggest_categorical("kind", ["a", None, 3])
    trial.report(x, step=0)
    trial.set_user_attr("worker", sys.argv[1])
    return x * x

study = optuna.create_study(
    storage=slipway.optuna_storage(), study_name="shared", load_if_exists=True,
    sampler=optuna.samplers.RandomSampler(seed=int(sys.argv[1])),
)
study.optimize(objective, n_trials=int(sys.argv[2]))
"""


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> str:
    """The slug of a fresh project that Alice owns."""
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


def _start(portal: LivePortal, project: str, seed: int, trials: int) -> subprocess.Popen[str]:
    environment = portal.environment | {
        "SLIPWAY_URL": portal.url,
        "SLIPWAY_TOKEN": portal.tokens["alice"],
        "SLIPWAY_PROJECT": project,
    }
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(seed), str(trials)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.postgres
def test_two_processes_share_a_study_and_no_trial_is_lost_or_doubled(
    portal: LivePortal, alice: slipway.Client, project: str
) -> None:
    processes = [_start(portal, project, seed, 4) for seed in (1, 2)]
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    study = optuna.load_study(
        study_name="shared", storage=slipway.optuna_storage(project=project, client=alice)
    )
    assert [trial.number for trial in study.trials] == list(range(8))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert Counter(trial.user_attrs["worker"] for trial in study.trials) == {"1": 4, "2": 4}
    assert all(trial.value == trial.params["x"] ** 2 for trial in study.trials)
    entries = [json.loads(text) for text in alice.optuna.entries("default", project=project)]
    assert Counter(entry["op_code"] for entry in entries)[4] == 8


@pytest.mark.postgres
def test_threads_share_a_storage(alice: slipway.Client, project: str) -> None:
    storage = slipway.optuna_storage("threads", project=project, client=alice)
    study = optuna.create_study(
        storage=storage,
        directions=["minimize", "maximize"],
        sampler=optuna.samplers.RandomSampler(seed=1),
    )
    study.optimize(
        lambda trial: (trial.suggest_int("n", 1, 9), trial.suggest_float("x", 0.1, 1, log=True)),
        n_trials=6,
        n_jobs=3,
    )
    assert sorted(trial.number for trial in study.trials) == list(range(6))
    assert all(trial.values == list(trial.params.values()) for trial in study.trials)
    assert study.best_trials


def test_two_storages_in_turns_see_each_others_changes(alice: slipway.Client, project: str) -> None:
    def storage() -> JournalStorage:
        return slipway.optuna_storage("turns", project=project, client=alice)

    first = optuna.create_study(storage=storage(), study_name="s", direction="maximize")
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(storage=storage(), study_name="s")
    second = optuna.load_study(study_name="s", storage=storage())
    first.enqueue_trial({"x": 0.25})
    trial = second.ask()
    assert (trial.number, trial.suggest_float("x", 0, 1)) == (0, 0.25)
    second.tell(trial, 0.5)
    with pytest.raises(ValueError, match="Cannot tell"):
        first.tell(0, 0.7, skip_if_finished=False)
    assert first.best_value == 0.5
    first.add_trial(
        optuna.create_trial(
            params={"x": 0.75},
            distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
            value=0.9,
        )
    )
    assert second.best_trial.number == 1
    optuna.delete_study(study_name="s", storage=storage())
    assert optuna.get_all_study_names(storage()) == []


@pytest.mark.postgres
def test_appends_at_once_keep_their_order(alice: slipway.Client, project: str) -> None:
    def append(worker: int) -> list[int]:
        firsts = []
        for at in range(5):
            text = json.dumps(
                {"op_code": 2, "worker_id": str(worker), "study_id": 0, "user_attr": {"at": at}}
            )
            firsts.append(alice.optuna.append("order", [text, text], project=project).first)
        return firsts

    with ThreadPoolExecutor(4) as pool:
        firsts = [number for numbers in pool.map(append, range(4)) for number in numbers]
    assert sorted(firsts) == list(range(0, 40, 2))
    entries = [json.loads(text) for text in alice.optuna.entries("order", project=project)]
    assert len(entries) == 40
    for worker in range(4):
        ours = [entry["user_attr"]["at"] for entry in entries if entry["worker_id"] == str(worker)]
        assert ours == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    rest = list(alice.optuna.entries("order", project=project, first=38))
    assert [json.loads(text) for text in rest] == entries[38:]


def test_a_storage_without_a_client_can_be_pickled(
    portal: LivePortal, project: str, alice: slipway.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_URL", portal.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", portal.tokens["alice"])
    monkeypatch.setenv("SLIPWAY_PROJECT", project)
    storage = slipway.optuna_storage()
    optuna.create_study(storage=storage, study_name="pickled")
    sent = pickle.dumps(storage)
    assert portal.tokens["alice"].encode() not in sent
    assert optuna.get_all_study_names(pickle.loads(sent)) == ["pickled"]  # noqa: S301
    with pytest.raises(errors.InvalidInput, match="in each process"):
        pickle.dumps(slipway.optuna_storage(client=alice))


@pytest.mark.postgres
def test_a_study_of_a_deleted_storage_ends_with_an_error(
    alice: slipway.Client, project: str
) -> None:
    def study(name: str) -> optuna.Study:
        storage = slipway.optuna_storage(project=project, client=alice)
        return optuna.create_study(storage=storage, study_name=name, load_if_exists=True)

    old = study("old")
    old.tell(old.ask(), 1.0)
    (shown,) = alice.optuna.storages(project=project)
    assert (shown.name, shown.is_full, shown.replay_error) == ("default", False, None)
    assert shown.entries == len(list(alice.optuna.entries("default", project=project)))
    alice.optuna.delete_storage("default", project=project)
    assert list(alice.optuna.storages(project=project)) == []
    with pytest.raises(errors.Conflict, match="deleted while it was used") as raised:
        old.ask()
    assert raised.value.code == "storage_deleted"
    with pytest.raises(errors.Conflict, match="deleted while it was used"):
        _ = old.trials

    new = study("new")
    for use in (old.ask, lambda: old.trials, lambda: old.optimize(lambda _: 0.0, n_trials=1)):
        with pytest.raises(errors.Conflict) as raised:
            use()
        assert raised.value.code == "storage_deleted"
    assert new.trials == []
    new.tell(new.ask(), 2.0)
    assert study("new").best_value == 2.0
    with pytest.raises(errors.NotFound):
        alice.optuna.delete_storage("second", project=project)


# The tasks of the control worker, which is not running beside the portal here.
_CONTROL = """
import sys
import django
django.setup()
from threading import Thread
from portal.sweeps.services.replays import replay_all
from portal.sweeps.services.storage_deletion import purge_deleted
from portal.sweeps.models import OptunaLogEntry, OptunaStorage
print("ready", flush=True)
end = Thread(target=sys.stdin.read)
end.start()
while end.is_alive() or OptunaStorage.objects.deleted().exists():
    replay_all()
    purge_deleted()
replay_all()
print(OptunaStorage.objects.exclude(replay_error="").count())
print(OptunaLogEntry.objects.filter(storage__project__slug=sys.argv[1]).count())
"""


@pytest.mark.postgres
def test_appends_replays_and_deletions_at_once_mix_no_two_logs(
    portal: LivePortal, alice: slipway.Client, project: str
) -> None:
    control = subprocess.Popen(
        [sys.executable, "-c", _CONTROL, project],
        env=portal.environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert control.stdout is not None
    assert control.stdout.readline() == "ready\n"

    def append(worker: int) -> list[tuple[str, int]]:
        stored: list[tuple[str, int]] = []
        storage_id: str | None = None
        for at in range(10):
            entry = {"op_code": 0, "worker_id": str(worker), "directions": [1]}
            text = json.dumps(entry | {"study_name": f"{worker}-{at}"})
            try:
                appended = alice.optuna.append(
                    "race", [text], project=project, storage_id=storage_id
                )
            except errors.Conflict as error:
                if error.code != "storage_deleted":
                    raise
                storage_id = None
                continue
            assert storage_id in (None, appended.storage_id)
            storage_id = appended.storage_id
            stored.append((storage_id, appended.first))
        return stored

    def delete() -> list[tuple[str, int]]:
        for _ in range(5):
            with suppress(errors.NotFound):
                alice.optuna.delete_storage("race", project=project)
        return []

    with ThreadPoolExecutor(4) as pool:
        futures = [*(pool.submit(append, worker) for worker in range(3)), pool.submit(delete)]
        stored = [pair for future in futures for pair in future.result()]
    output, _ = control.communicate(timeout=300)
    assert control.returncode == 0
    assert len(set(stored)) == len(stored)
    storages = list(alice.optuna.storages(project=project))
    length = storages[0].entries if storages else 0
    assert output.split() == ["0", str(length)]
    if storages:
        kept = sorted(first for key, first in stored if key == storages[0].id)
        assert kept == list(range(length))
        assert storages[0].studies == length


def test_another_project_has_studies_of_its_own(
    portal: LivePortal, alice: slipway.Client, project: str
) -> None:
    optuna.create_study(
        storage=slipway.optuna_storage(project=project, client=alice), study_name="s"
    )
    other = alice.projects.create(f"Project {secrets.token_hex(4)}").slug
    storage = slipway.optuna_storage(project=other, client=alice)
    assert optuna.get_all_study_names(storage) == []
    with slipway.Client(portal.url, portal.tokens["bob"]) as bob:
        storage = slipway.optuna_storage(project=project, client=bob)
        assert optuna.get_all_study_names(storage) == []
        with pytest.raises(errors.NotFound):
            optuna.create_study(storage=storage, study_name="s")


def test_without_optuna_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['optuna'] = None\nimport slipway; slipway.optuna_storage()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "platform",
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'pip install "optuna>=4"' in done.stderr
