"""Pages of Optuna storages: the list, the part of a study's page, and deletion."""

from html import unescape
from typing import Any

import pytest

from portal.sweeps.models import OptunaLogEntry, OptunaStorage, OptunaStudy
from portal.sweeps.services.replays import forget_replays, replay_all
from portal.workloads.tokens import token_of
from slipway.schemas.studies import MAX_SIZE_BYTES
from tests.personas import Api, Personas
from tests.portal.sweeps.test_optuna_storages import append, create_study
from tests.portal.training.jobs import made_job, place, take_code
from tests.portal.web.conftest import Browse
from tests.portal.workloads.machines import Machine, run

STORAGES = "/p/vision/optuna-storages"
DELETE = f"{STORAGES}/default/delete"


@pytest.fixture(autouse=True)
def _no_replays() -> None:
    forget_replays()


def page_of(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return unescape(answer.content.decode())


def study_page(client: Any, name: str) -> str:
    study = OptunaStudy.objects.get(name=name, storage__deleted_at__isnull=True)
    return page_of(client, f"/p/vision/optuna-studies/{study.pk}")


def test_a_study_shows_its_storage_and_who_may_deletes_it(
    bob: Api, people: Personas, browse: Browse
) -> None:
    append(bob, create_study("digits"), *[create_study(f"other-{at}") for at in range(12)])
    replay_all()
    page = study_page(browse(people.bob), "digits")
    assert "Storage default" in page
    assert "13 of 200,000 entries" in page
    assert "other-11" in page
    assert "and 2 more" in page
    assert DELETE in page
    vera = browse(people.vera)
    assert DELETE not in study_page(vera, "digits")
    listed = page_of(vera, STORAGES)
    assert "13 of 200,000 entries" in listed
    assert DELETE not in listed
    assert STORAGES in page_of(vera, "/p/vision/sweeps")
    assert vera.get(DELETE).status_code == 403
    assert vera.post(DELETE).status_code == 403

    client = browse(people.bob)
    assert DELETE in page_of(client, STORAGES)
    question = page_of(client, DELETE)
    assert "Delete the Optuna storage default?" in question
    assert "and 8 more: deleted with all trials, 0." in question
    assert OptunaStorage.objects.live().count() == 1
    answer = client.post(DELETE, follow=True)
    assert "The Optuna storage default is deleted." in answer.content.decode()
    assert "No Optuna storages yet" in answer.content.decode()
    assert client.get(DELETE).status_code == 404


def test_the_question_names_the_job_that_still_writes(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    take_code(bob)
    workload = place(made_job(bob))
    run(workload)
    append(Api(token_of(workload.pk, workload.epoch)), create_study())
    client = browse(people.bob)
    question = page_of(client, DELETE)
    assert "No study is in it." in question
    assert f"The job {workload.name} writes to it" in question
    answer = unescape(client.post(DELETE, follow=True).content.decode())
    assert "has not ended" in answer
    assert OptunaStorage.objects.live().count() == 1


def test_full_and_broken_storages_say_what_to_do(
    bob: Api, people: Personas, browse: Browse
) -> None:
    append(bob, create_study("<full>"))
    replay_all()
    OptunaStorage.objects.update(size_bytes=MAX_SIZE_BYTES)
    vera = browse(people.vera)
    for page in (study_page(vera, "<full>"), page_of(vera, STORAGES)):
        assert "The storage is full" in page
        assert "delete this one" in page
    append(bob, create_study("lost"), path="projects/vision/optuna-storages/second/log")
    # As an older version may have accepted it.
    OptunaLogEntry.objects.filter(storage__name="second").update(text='{"op_code": 0}')
    replay_all()
    listed = page_of(vera, STORAGES)
    assert "Entry 0 cannot be replayed" in listed
    assert "Optuna cannot read this storage any more." in listed


def test_a_storage_of_another_project_has_no_page(
    people: Personas, bob: Api, browse: Browse
) -> None:
    append(Api.of(people.charlie), create_study(), path="projects/other/optuna-storages/s/log")
    client = browse(people.bob)
    for address in (
        *("/p/other/optuna-storages", "/p/other/optuna-storages/s/delete"),
        f"{STORAGES}/s/delete",
    ):
        assert client.get(address).status_code == 404
        assert client.post(address).status_code in (404, 405)
    assert OptunaStorage.objects.live().count() == 1
