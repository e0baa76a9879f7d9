"""Lists of Optuna storages and their deletion."""

from typing import Any

import pytest

from portal.sweeps.models import OptunaLogEntry, OptunaStorage, OptunaStudy, OptunaTrial
from portal.sweeps.services import replays, storage_deletion
from portal.sweeps.services.replays import forget_replays, replay_all
from portal.sweeps.services.storage_deletion import purge_deleted
from portal.workloads.tokens import token_of
from slipway.schemas.accounts import Scope
from slipway.schemas.studies import MAX_SIZE_BYTES, MAX_STORAGES
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.test_optuna_storages import LOG, TIME, append, create_study, entry
from tests.portal.training.jobs import made_job, place, take_code
from tests.portal.workloads.machines import Machine, run

STORAGES = "projects/vision/optuna-storages"
STORAGE = f"{STORAGES}/default"
STUDIES = "projects/vision/optuna-studies"


@pytest.fixture(autouse=True)
def _no_replays() -> None:
    forget_replays()


def create_trial(study: int = 0) -> str:
    return entry(4, study_id=study, datetime_start=TIME)


def listed(api: Api) -> list[Any]:
    answer = api.get(STORAGES)
    assert answer.status_code == 200, answer.content
    items: list[Any] = json_of(answer)["items"]
    return items


def conflict(answer: Any, code: str) -> Any:
    problem = json_of(answer)
    assert (answer.status_code, problem["code"]) == (409, code), problem
    assert problem["next_step"]
    return problem


def rows() -> tuple[int, int, int, int]:
    return (
        OptunaStorage.objects.count(),
        OptunaLogEntry.objects.count(),
        OptunaStudy.objects.count(),
        OptunaTrial.objects.count(),
    )


@pytest.mark.postgres
def test_storages_are_listed_with_size_studies_and_creator(people: Personas, bob: Api) -> None:
    append(bob, create_study("a"), create_study("b"), create_trial())
    append(bob, create_study("c"), path=f"{STORAGES}/second/log")
    replay_all()
    vera = Api.of(people.vera)
    second, first = listed(vera)
    assert (first["name"], first["entries"], first["studies"]) == ("default", 3, 2)
    assert (second["name"], second["entries"], second["studies"]) == ("second", 1, 1)
    assert first["size_bytes"] == sum(map(len, json_of(vera.get(LOG))["entries"]))
    assert first["created_by"]["email"] == "bob@example.org"
    assert first["created_at"]
    assert (first["is_full"], first["replay_error"], first["next_step"]) == (False, None, None)
    page = json_of(vera.get(f"{STORAGES}?limit=1"))
    rest = json_of(vera.get(f"{STORAGES}?limit=1&cursor={page['next_cursor']}"))
    assert [page["items"][0]["name"], rest["items"][0]["name"]] == ["second", "default"]


def test_full_and_broken_storages_say_what_to_do(bob: Api) -> None:
    append(bob, create_study())
    append(bob, create_study(), path=f"{STORAGES}/second/log")
    OptunaStorage.objects.filter(name="default").update(size_bytes=MAX_SIZE_BYTES)
    # As an older version may have accepted it.
    OptunaLogEntry.objects.filter(storage__name="second").update(text='{"op_code": 0}')
    replay_all()
    second, first = listed(bob)
    assert first["is_full"]
    assert "slipway.optuna_storage(" in first["next_step"]
    assert not second["is_full"]
    assert "Entry 0" in second["replay_error"]
    assert "delete this one" in second["next_step"]


@pytest.mark.postgres
def test_deletion_removes_the_storage_at_once_and_its_rows_soon(people: Personas, bob: Api) -> None:
    append(bob, create_study("old"), create_trial(), create_trial())
    append(bob, create_study("kept"), create_trial(), path=f"{STORAGES}/second/log")
    replay_all()
    study = next(each for each in json_of(bob.get(STUDIES))["items"] if each["name"] == "old")
    assert rows() == (2, 5, 2, 3)
    assert bob.delete(STORAGE).status_code == 204
    assert [each["name"] for each in listed(bob)] == ["second"]
    assert [each["name"] for each in json_of(bob.get(STUDIES))["items"]] == ["kept"]
    for path in (LOG, f"{STUDIES}/{study['id']}", f"{STUDIES}/{study['id']}/trials"):
        assert bob.get(path).status_code == 404
    assert bob.delete(STORAGE).status_code == 404
    # Its name is free, whether or not its rows are still there.
    append(bob, create_study("new"))
    assert json_of(bob.get(LOG))["length"] == 1
    assert purge_deleted() == 6
    assert purge_deleted() == 0
    replay_all()
    assert rows() == (2, 3, 2, 1)
    events = json_of(Api.of(people.alice).get("projects/vision/audit"))["items"]
    deleted = [event for event in events if event["verb"] == "optuna_storage.delete"]
    assert [(each["actor"], each["target_label"]) for each in deleted] == [
        ("bob@example.org", "default")
    ]


@pytest.mark.postgres
def test_a_purge_that_stops_in_between_is_continued(
    bob: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(bob, create_study(), *[create_trial()] * 9)
    replay_all()
    assert bob.delete(STORAGE).status_code == 204
    monkeypatch.setattr(storage_deletion, "_BATCH", 2)
    monkeypatch.setattr(storage_deletion, "_MOST_ROWS", 4)
    counts = [purge_deleted() for _ in range(6)]
    assert counts == [4, 4, 4, 4, 4, 0]
    assert rows() == (0, 0, 0, 0)


def test_deletion_makes_room_for_another_storage(people: Personas, bob: Api) -> None:
    append(bob, create_study())
    for number in range(MAX_STORAGES - 1):
        OptunaStorage.objects.create(
            project=people.vision, created_by=people.bob, name=f"s{number}"
        )
    full = bob.post(f"{STORAGES}/more/log", {"entries": [create_study()]})
    assert "slipway optuna delete" in conflict(full, "too_many_storages")["next_step"]
    assert bob.delete(STORAGE).status_code == 204
    append(bob, create_study(), path=f"{STORAGES}/more/log")


def test_contributors_delete_and_nobody_else(people: Personas, bob: Api) -> None:
    append(bob, create_study())
    charlie = Api.of(people.charlie)
    append(charlie, create_study(), path="projects/other/optuna-storages/default/log")
    assert Api.of(people.vera).delete(STORAGE).status_code == 403
    assert Api.of(people.bob, scopes=[Scope.EXPERIMENTS_READ]).delete(STORAGE).status_code == 403
    for method in (charlie.get, charlie.delete):
        assert method(STORAGE if method == charlie.delete else STORAGES).status_code == 404
    assert bob.delete("projects/other/optuna-storages/default").status_code == 404
    assert bob.get("projects/other/optuna-storages").status_code == 404
    assert len(listed(bob)) == 1
    assert bob.delete(STORAGE).status_code == 204
    assert OptunaStorage.objects.live().get().project.slug == "other"


@pytest.mark.parametrize(
    "name", ["%00", "..", "%2e%2e%2fdefault", "DEFAULT", "a" * 500, "%F0%9F%9A%A2", "default'--"]
)
@pytest.mark.postgres
def test_hostile_names_delete_nothing(bob: Api, name: str) -> None:
    append(bob, create_study())
    assert bob.delete(f"{STORAGES}/{name}").status_code in (400, 404, 405, 422)
    assert len(listed(bob)) == 1


@pytest.mark.postgres
def test_it_is_refused_while_a_job_that_has_written_to_it_has_not_ended(
    bob: Api, machine: Machine
) -> None:
    take_code(bob)
    workload = place(made_job(bob))
    run(workload)
    in_job = Api(token_of(workload.pk, workload.epoch))
    append(in_job, create_study())
    append(bob, create_study(), path=f"{STORAGES}/second/log")
    problem = conflict(bob.delete(STORAGE), "storage_in_use")
    assert workload.pk in problem["detail"]
    assert f"slipway job cancel {workload.pk}" in problem["next_step"]
    assert json_of(bob.get(LOG))["length"] == 1
    # Another storage of the project is not in use.
    assert bob.delete(f"{STORAGES}/second").status_code == 204
    type(workload).objects.filter(pk=workload.pk).update(
        state="succeeded", ended_at=workload.created_at
    )
    assert bob.delete(STORAGE).status_code == 204


@pytest.mark.postgres
def test_a_client_of_a_deleted_storage_gets_an_error_and_never_another_log(bob: Api) -> None:
    first = bob.post(LOG, {"entries": [create_study(), create_trial()]})
    old = json_of(first)["storage_id"]
    assert json_of(bob.get(LOG))["storage_id"] == old
    body = {"entries": [create_trial()], "storage_id": old}
    assert bob.post(LOG, body, key="trial-1").status_code == 201
    assert bob.delete(STORAGE).status_code == 204
    conflict(bob.post(LOG, body), "storage_deleted")
    # An append that was accepted before has the answer of before.
    assert json_of(bob.post(LOG, body, key="trial-1"))["length"] == 3
    assert OptunaStorage.objects.live().count() == 0

    new = json_of(bob.post(LOG, {"entries": [create_study("new")]}))["storage_id"]
    assert new != old
    conflict(bob.post(LOG, body), "storage_deleted")
    conflict(bob.get(f"{LOG}?storage_id={old}"), "storage_deleted")
    conflict(bob.get(f"{LOG}?from=3"), "storage_deleted")
    part = json_of(bob.get(f"{LOG}?from=1&storage_id={new}"))
    assert (part["entries"], part["length"]) == ([], 1)
    for storage_id in ("", "x" * 41, 1, "\0"):
        refused = bob.post(LOG, {"entries": [create_study()], "storage_id": storage_id})
        assert refused.status_code in (409, 422)
    assert json_of(bob.get(LOG))["length"] == 1


def test_a_replay_that_meets_a_deletion_ends_without_an_error(
    bob: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(bob, create_study(), create_trial())
    replay_all()
    append(bob, create_trial())
    read = replays._entries

    def delete_after(storage: OptunaStorage, first: int) -> Any:
        entries = read(storage, first)
        assert bob.delete(STORAGE).status_code == 204
        purge_deleted()
        return entries

    monkeypatch.setattr(replays, "_entries", delete_after)
    replay_all()
    assert rows() == (0, 0, 0, 0)
    replay_all()
    assert not replays._replays
