"""A version says whether requests to it are merged, by whose word, and what merging gains."""

from typing import Any

import pytest
from django.test import Client

from portal.endpoints.adapters.registry_models import RegistryModels
from portal.endpoints.ports import ServedModel
from slipway.schemas.serving import BatchingMode, BatchingReport, BatchingVerdict
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import FILES, MLMODEL, Store
from tests.portal.registry.test_registering import MODELS, register

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
VERSION = f"{MODELS}/digits/versions/1"
PAGE = "/p/vision/models/digits/versions/1"
REFUTED = BatchingReport(
    mode=BatchingMode.REQUESTS,
    verdict=BatchingVerdict.REFUTED,
    reason=(
        "Beside other rows, golden row 1 gives a different prediction: [0] is 0.1; 0.5 was "
        "expected."
    ),
    alone_us=400.0,
    merged_us=20.0,
    merged_rows=64,
)


def _shown(api: Api) -> Any:
    return json_of(api.get(VERSION))["batching"]


def _served(store: Store) -> ServedModel:
    return RegistryModels().find(project_id=store.project_id, model="digits", version="1")


def _report(store: Store, served: ServedModel, report: BatchingReport = REFUTED) -> None:
    RegistryModels().note_batching(project_id=store.project_id, served=served, report=report)


def test_the_metadata_of_an_mlflow_model_states_it_and_registration_outweighs_that(
    bob: Api, store: Store
) -> None:
    text = f"{MLMODEL}metadata: {{slipway_batching: rows, other: 1}}\n"
    run_id = store.run(files=FILES | {"MLmodel": text.encode()})
    register(bob, run_id)
    shown = _shown(bob)
    assert (shown["mode"], shown["stated_in"]) == ("rows", "metadata")
    assert _served(store).batching == "rows"
    made = register(bob, run_id, batching="off")
    assert (made["batching"]["mode"], made["batching"]["stated_in"]) == ("off", "registration")


@pytest.mark.parametrize("value", ["columns", "[rows]", "{rows: 1}", "''", "null"])
def test_other_words_in_the_metadata_state_nothing(bob: Api, store: Store, value: str) -> None:
    text = f"{MLMODEL}metadata: {{slipway_batching: {value}}}\n"
    register(bob, store.run(files=FILES | {"MLmodel": text.encode()}))
    assert (_shown(bob)["mode"], _shown(bob)["stated"]) == ("requests", None)


def test_what_a_replica_proved_is_shown_until_other_rows_or_words_count(
    bob: Api, store: Store
) -> None:
    register(bob, store.run())
    assert "No golden rows are recorded" in _shown(bob)["reason"]
    bob.put(f"{VERSION}/golden", {"inputs": [[0.5]], "outputs": [1]})
    assert "Not proved yet" in _shown(bob)["reason"]
    served = _served(store)
    _report(store, served)
    shown = _shown(bob)
    assert (shown["mode"], shown["verdict"]) == ("requests", "refuted")
    assert shown["reason"] == REFUTED.reason
    assert shown["gain"] == (
        "Merging would gain up to 20.0 times as many rows a second: "
        "a row takes 0.4 ms alone and 0.02 ms among 64 in a call."
    )
    bob.put(f"{VERSION}/golden", {"inputs": [[0.5]], "outputs": [1]})
    assert "Not proved yet" in _shown(bob)["reason"]
    stated = bob.put(f"{VERSION}/batching", {"mode": "off"})
    assert json_of(stated)["batching"]["mode"] == "off"
    # A replica of before that statement reports late.
    _report(store, served)
    assert _shown(bob)["reason"] == "Its author declared off."


def test_the_page_of_a_version_shows_it_and_takes_a_statement(
    bob: Api, store: Store, people: Personas
) -> None:
    register(bob, store.run())
    _report(store, _served(store))
    browser = Client(headers={"Accept": "text/html"})
    browser.force_login(people.bob)
    text = browser.get(PAGE).content.decode()
    assert "Each request is predicted separately. Beside other rows, golden row 1" in text
    assert "Merging would gain up to 20.0 times" in text
    assert browser.post(f"{PAGE}/batching", {"batching": "columns"}).status_code == 422
    assert browser.post(f"{PAGE}/batching", {"batching": "rows"}).status_code == 302
    text = browser.get(PAGE).content.decode()
    assert "Queued requests are merged into one call of the model." in text
