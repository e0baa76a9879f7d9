"""Studies that people keep with Optuna: replayed into rows, in the API and on pages."""

import json
from collections.abc import Sequence
from typing import Any

import optuna
import pytest
from optuna.storages.journal import BaseJournalBackend

from portal.sweeps.models import OptunaLogEntry, OptunaStorage, OptunaTrial
from portal.sweeps.services.replays import forget_replays, replay_all
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.test_optuna_storages import LOG, append, create_study, entry
from tests.portal.training.jobs import made_job, place, take_code
from tests.portal.web.conftest import Browse
from tests.portal.workloads.machines import Machine, run

STUDIES = "projects/vision/optuna-studies"


class ApiLog(BaseJournalBackend):
    """A log over the API, in the process of the test."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def read_logs(self, log_number_from: int) -> Sequence[dict[str, Any]]:
        answer = self._api.get(f"{LOG}?from={log_number_from}")
        if answer.status_code == 404:
            return []
        return [json.loads(text) for text in json_of(answer)["entries"]]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        append(self._api, *[json.dumps(each) for each in logs])


@pytest.fixture(autouse=True)
def _no_replays() -> None:
    forget_replays()


def _study(api: Api, name: str = "digits", **options: Any) -> optuna.Study:
    storage = optuna.storages.JournalStorage(ApiLog(api))
    sampler = optuna.samplers.RandomSampler(seed=1)
    return optuna.create_study(storage=storage, study_name=name, sampler=sampler, **options)


def _studies(api: Api) -> list[Any]:
    replay_all()
    items: list[Any] = json_of(api.get(STUDIES))["items"]
    return items


def _trials(api: Api, study: str) -> list[Any]:
    items: list[Any] = json_of(api.get(f"{STUDIES}/{study}/trials"))["items"]
    return items


@pytest.mark.postgres
def test_a_study_and_its_trials_are_shown_as_optuna_has_them(bob: Api) -> None:
    study = _study(bob, direction="maximize")
    study.enqueue_trial({"lr": 0.5})
    (shown,) = _studies(bob)
    assert (shown["trials"], shown["running"], shown["best"]) == (1, 0, None)
    assert _trials(bob, shown["id"])[0]["state"] == "waiting"

    trial = study.ask()
    trial.suggest_float("lr", 0.1, 1, log=True)
    trial.suggest_categorical("kind", ["a\0b", None, 3])
    (shown,) = _studies(bob)
    assert shown["running"] == 1
    study.tell(trial, 0.75)
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    study.tell(study.ask(), 0.5)
    study.tell(study.ask(), float("inf"))
    (shown,) = _studies(bob)
    assert (shown["name"], shown["storage"], shown["goals"]) == ("digits", "default", ["max"])
    assert (shown["trials"], shown["running"]) == (4, 0)
    assert shown["best"] == {"number": 0, "value": 0.75}
    trials = {trial["number"]: trial for trial in _trials(bob, shown["id"])}
    assert [trials[number]["state"] for number in range(4)] == [
        *("complete", "failed", "complete", "complete"),
    ]
    assert trials[0]["parameters"]["lr"] == 0.5
    assert trials[0]["parameters"]["kind"] in ("a\\x00b", None, 3)
    assert [trials[number]["values"] for number in range(4)] == [[0.75], [], [0.5], [None]]
    frozen = study.trials[0]
    assert frozen.datetime_complete is not None
    assert json_of(bob.get(f"{STUDIES}/{shown['id']}"))["changed_at"] == shown["changed_at"]


@pytest.mark.postgres
def test_a_replay_after_a_restart_changes_nothing_and_goes_on(bob: Api) -> None:
    study = _study(bob)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    (before,) = _studies(bob)
    trials = _trials(bob, before["id"])
    forget_replays()
    assert replay_all() == 0
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    (after,) = _studies(bob)
    assert (after["id"], after["trials"]) == (before["id"], 4)
    assert _trials(bob, after["id"])[1:] == trials
    assert OptunaStorage.objects.get().replayed == OptunaStorage.objects.get().length


def test_a_deleted_study_goes_and_a_new_one_of_that_name_is_another(bob: Api) -> None:
    study = _study(bob)
    study.tell(study.ask(), 1.0)
    (first,) = _studies(bob)
    optuna.delete_study(study_name="digits", storage=optuna.storages.JournalStorage(ApiLog(bob)))
    assert _studies(bob) == []
    assert not OptunaTrial.objects.exists()
    _study(bob)
    (second,) = _studies(bob)
    assert (second["name"], second["trials"]) == ("digits", 0)
    assert second["id"] != first["id"]


def test_the_job_whose_token_created_a_trial_is_linked(
    bob: Api, machine: Machine, browse: Browse, people: Personas
) -> None:
    take_code(bob)
    workload = place(made_job(bob))
    run(workload)
    job = workload.pk
    _study(bob)
    in_job = Api(token_of(job, workload.epoch))
    study = optuna.load_study(
        study_name="digits", storage=optuna.storages.JournalStorage(ApiLog(in_job))
    )
    study.tell(study.ask(), 1.0)
    (shown,) = _studies(bob)
    (trial,) = _trials(bob, shown["id"])
    assert trial["job"] == job
    page = browse(people.vera).get(f"/p/vision/optuna-studies/{shown['id']}").content.decode()
    assert f"/p/vision/jobs/{job}" in page


def test_entries_that_refer_to_nothing_change_nothing(bob: Api) -> None:
    append(
        bob,
        create_study(),
        create_study(),
        entry(4, study_id=7, datetime_start="2026-11-30T10:00:00+00:00"),
        entry(6, trial_id=3, state=3, values=None, datetime_complete="2026-11-30T10:00:00+00:00"),
        entry(1, study_id=9),
    )
    (shown,) = _studies(bob)
    assert shown["trials"] == 0


def test_an_entry_that_cannot_be_replayed_stops_its_storage_alone(
    bob: Api, people: Personas
) -> None:
    theirs = "projects/vision/optuna-storages/second/log"
    append(bob, create_study())
    append(bob, create_study("second"), path=theirs)
    # As an older version may have accepted it.
    OptunaLogEntry.objects.filter(storage__name="default").update(text='{"op_code": 0}')
    assert [study["name"] for study in _studies(bob)] == ["second"]
    assert "Entry 0" in OptunaStorage.objects.get(name="default").replay_error
    assert replay_all() == 0


def test_a_study_of_another_project_does_not_exist(bob: Api, people: Personas) -> None:
    charlie = Api.of(people.charlie)
    append(charlie, create_study("theirs"), path="projects/other/optuna-storages/default/log")
    replay_all()
    (theirs,) = json_of(charlie.get("projects/other/optuna-studies"))["items"]
    for end in ("", "/trials"):
        assert bob.get(f"{STUDIES}/{theirs['id']}{end}").status_code == 404
    assert _studies(bob) == []


def test_pages_show_studies_with_curve_slices_and_trials(
    bob: Api, people: Personas, browse: Browse
) -> None:
    study = _study(bob, name="<digits>", direction="maximize")
    study.optimize(
        lambda trial: trial.suggest_float("lr", 0.1, 1) + trial.suggest_int("n", 1, 3), n_trials=3
    )
    (shown,) = _studies(bob)
    vera = browse(people.vera)
    listed = vera.get("/p/vision/sweeps").content.decode()
    assert "Optuna studies" in listed
    assert "&lt;digits&gt;" in listed
    page = vera.get(f"/p/vision/optuna-studies/{shown['id']}").content.decode()
    assert "slices-data" in page
    assert "&quot;best&quot;" in page
    assert page.count("<tr>") == 4
    assert vera.get("/p/vision/optuna-studies/ost_01j00000000000000000000000").status_code == 404


def test_a_study_with_two_directions_has_a_front(
    bob: Api, people: Personas, browse: Browse
) -> None:
    study = _study(bob, directions=["minimize", "maximize"])
    for values in ((1, 1), (2, 3), (2, 2)):
        study.tell(study.ask(), list(map(float, values)))
    (shown,) = _studies(bob)
    assert (shown["goals"], shown["best"]) == (["min", "max"], None)
    page = browse(people.vera).get(f"/p/vision/optuna-studies/{shown['id']}").content.decode()
    assert "Pareto front" in page
    assert "[[0, 1.0, 1.0], [1, 2.0, 3.0]]" in page.replace("&quot;", '"')
