"""Pages of batch predictions: the list, the form with its price, and the page of one."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.batch_predictions.models import BatchPrediction
from portal.datasets.version_checks import check_waiting
from tests.personas import Personas
from tests.portal.batch_predictions.predicting import AT, Place, own, result
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, text_of

pytestmark = pytest.mark.django_db
PAGES = "/p/vision/batch-predictions"
FORM = {
    "model": "prices",
    "dataset": "sales",
    "output": "predicted",
    "keep": "id\n",
    "on_error": "skip",
    "tier": "small",
}
MOST_QUERIES = 28


def test_a_dataset_is_predicted_from_the_page_of_a_version(
    place: Place, people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    page = bob.get("/p/vision/models/prices/versions/1")
    assert f"{PAGES}/new?model=prices&amp;version=1" in page.content.decode()
    assert "No batch predictions yet" in text_of(bob.get(PAGES))
    form = bob.get(f"{PAGES}/new?model=prices&version=1")
    assert 'value="prices"' in form.content.decode()
    quote = text_of(bob.post(f"{PAGES}/quote", FORM))
    assert "prices version 1" in quote
    assert "sales:1, 2 rows" in quote
    made = bob.post(f"{PAGES}/new", FORM)
    prediction = BatchPrediction.objects.get()
    assert made.status_code == 302
    assert made["Location"] == f"{PAGES}/{prediction.pk}"
    assert (prediction.keep, prediction.on_error) == (["id"], "skip")
    job = bob.get(f"/p/vision/jobs/{prediction.pk}").content.decode()
    assert f"{PAGES}/{prediction.pk}" in job
    assert "Clone with edits" not in job


def test_what_does_not_fit_is_shown_at_its_field(
    place: Place, people: Personas, browse: Browse
) -> None:
    place.push(b"id,price\nr1,1.5\n", "narrow")
    bob = browse(people.bob)
    answer = bob.post(f"{PAGES}/new", FORM | {"dataset": "narrow"})
    assert answer.status_code == 422
    assert "lack the column count" in fault_of(answer, "dataset")
    quote = text_of(bob.post(f"{PAGES}/quote", FORM | {"dataset": "narrow"}))
    assert "lack the column count" in quote
    assert not BatchPrediction.objects.exists()
    empty = bob.post(f"{PAGES}/new", {"do": "quote"})
    assert "Choose a model" in text_of(empty)


def test_the_page_of_one_shows_counts_lineage_and_cost(
    place: Place, people: Personas, browse: Browse
) -> None:
    prediction = place.start(on_error="skip")
    vera = browse(people.vera)
    waiting = text_of(vera.get(f"{PAGES}/{prediction}"))
    assert "predicted, at the end" in waiting
    failure = "Row 2 of sales.csv in sales:1: a price is negative"
    reported = result(place.draft(), failed_rows=1, first_failure=failure)
    own(prediction).put(f"{AT}/{prediction}/output", reported)
    check_waiting()
    place.end(prediction)
    page = vera.get(f"{PAGES}/{prediction}")
    text = text_of(page)
    assert failure in text
    assert "predicted:1" in text
    content = page.content.decode()
    assert "/p/vision/datasets/sales/v/1" in content
    assert "/p/vision/datasets/predicted/v/1" in content
    assert "/p/vision/models/prices/versions/1" in content
    assert "Predict again" not in content, "a viewer starts nothing"
    assert "predicted:1" in text_of(vera.get(PAGES))
    version = vera.get("/p/vision/models/prices/versions/1").content.decode()
    assert f"{PAGES}/{prediction}" in version
    assert browse(people.charlie).get(f"{PAGES}/{prediction}").status_code == 404


def test_a_long_list_needs_a_fixed_number_of_queries(
    place: Place, people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    counts = []
    for output in ("first", "second", "third"):
        place.start(output=output)
        bob.get(PAGES)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            bob.get(PAGES)
        counts.append(len(queries))
    assert counts[1] == counts[2] <= MOST_QUERIES
