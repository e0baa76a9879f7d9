"""Tasks of endpoints: inferred with a sentence, corrected by people, labels compared by value."""

from typing import Any

import pytest
from django.test import Client

from tests.personas import Personas
from tests.portal.monitoring.captured import Traffic

PAGE = "/p/vision/endpoints/digits/monitoring"


def _predict(traffic: Traffic, answers: list[Any]) -> list[str]:
    requests = [{"dataframe_records": [{"amount": float(at)}]} for at in range(len(answers))]
    return traffic.capture(requests, [{"predictions": [answer]} for answer in answers])


def _label(traffic: Traffic, ids: list[str], values: list[Any]) -> Any:
    labels = [
        {"prediction_id": name, "value": value} for name, value in zip(ids, values, strict=True)
    ]
    done = traffic.post("labels", {"labels": labels})
    traffic.look()
    return done


def _quality(traffic: Traffic, answers: list[Any], values: list[Any]) -> Any:
    ids = _predict(traffic, answers)
    traffic.look()
    _label(traffic, ids, values)
    return traffic.shown()["quality"]


@pytest.mark.thorough
def test_booleans_and_the_numbers_of_a_truth_file_are_the_same_classes(traffic: Traffic) -> None:
    answers = [at % 2 == 0 for at in range(300)]
    truth: list[Any] = [int(answer if at % 10 else not answer) for at, answer in enumerate(answers)]
    truth[:6] = [bool(value) for value in truth[:6]]
    truth[6:9] = [str(value) for value in truth[6:9]]
    truth[9:12] = ["true" if value else "false" for value in truth[9:12]]
    quality = _quality(traffic, answers, truth)
    assert quality["figures"]["accuracy"] == 0.9
    shown = traffic.shown()["task"]
    assert (shown["task"], shown["label_type"], shown["is_declared"]) == (
        *("classification", "boolean", False),
    )
    assert "inferred" in shown["reason"]
    confusion = {(cell["truth"], cell["predicted"]): cell["rows"] for cell in quality["confusion"]}
    assert sum(confusion.values()) == 300
    assert set(confusion) == {("true", "true"), ("false", "true"), ("false", "false")}


@pytest.mark.thorough
def test_whole_numbers_with_many_values_are_quantities(traffic: Traffic) -> None:
    answers = [at % 200 for at in range(300)]
    quality = _quality(traffic, answers, [answer + 1 for answer in answers])
    assert quality["figures"]["mae"] == 1
    assert quality["figures"]["bias"] == -1
    assert "accuracy" not in quality["figures"]
    assert traffic.shown()["task"]["task"] == "regression"
    sliced = traffic.shown(feature="amount", operator=">", value="100")["quality"]
    assert sliced["figures"]["mae"] == 1


@pytest.mark.thorough
def test_a_corrected_task_recomputes_what_is_shown(traffic: Traffic, people: Personas) -> None:
    answers = [at % 5 for at in range(60)]
    quality = _quality(traffic, answers, [answer + 1 for answer in answers])
    assert (quality["figures"]["accuracy"], traffic.shown()["task"]["task"]) == (
        0,
        "classification",
    )
    bob = Client(headers={"Accept": "text/html"})
    bob.force_login(people.bob)
    page = bob.get(PAGE).content.decode()
    assert "Classification" in page
    assert "inferred" in page
    form = {"task": "regression", "label_type": "", "keep_days": "30"}
    assert bob.post(f"{PAGE}/watching", form).status_code == 302
    between = traffic.shown()
    assert between["task"]["is_declared"]
    assert "accuracy" not in between["quality"]["figures"]
    traffic.look()
    assert traffic.shown()["quality"]["figures"]["mae"] == 1
    page = bob.get(PAGE).content.decode()
    assert "Mean absolute error" in page
    assert "Accuracy" not in page
    traffic.settings(task=None)
    traffic.look()
    assert traffic.shown()["quality"]["figures"]["accuracy"] == 0


@pytest.mark.thorough
def test_classes_with_leading_zeros_stay_text(traffic: Traffic) -> None:
    answers = ["007", "7", "008", "8"]
    quality = _quality(traffic, answers, ["007", 7, "8", "8"])
    assert quality["figures"]["accuracy"] == 0.75
    assert traffic.shown()["task"]["label_type"] == "string"


@pytest.mark.thorough
def test_a_label_that_cannot_be_of_the_declared_type_is_refused(traffic: Traffic) -> None:
    ids = _predict(traffic, [True, False])
    traffic.settings(task="classification", label_type="boolean")
    traffic.look()
    labels = [
        {"prediction_id": ids[0], "value": "yes"},
        {"prediction_id": ids[1], "value": 1},
    ]
    refused = traffic.api.post(f"{traffic.root}/labels", {"labels": labels})
    assert refused.status_code == 422
    body = refused.content.decode()
    assert "labels.0.value" in body
    assert "yes" in body
    assert "boolean" in body
    done = _label(traffic, ids, ["", "1.0"])
    assert (done["added"], done["empty"]) == (1, 1)
    shown = traffic.shown()
    assert shown["empty_labels"] == 1
    assert (shown["quality"]["labelled"], shown["quality"]["figures"]["accuracy"]) == (1, 0)


@pytest.mark.thorough
def test_measures_that_cannot_be_right_are_not_shown_and_say_why(traffic: Traffic) -> None:
    ids = traffic.normal(20)
    traffic.look()
    _label(traffic, ids, [1] * 20)
    quality = traffic.shown()["quality"]
    assert "auc" not in quality["figures"]
    assert "one class" in quality["withheld"]["auc"]
    traffic.settings(task="regression")
    other = _predict(traffic, [2.5])
    traffic.look()
    _label(traffic, other, [2.0])
    quality = traffic.shown()["quality"]
    assert quality["figures"]["mae"] == 0.5
    assert "r2" not in quality["figures"]
    assert quality["withheld"]["r2"]


@pytest.mark.thorough
def test_probabilities_rankings_forecasts_and_label_sets(traffic: Traffic) -> None:
    quality = _quality(traffic, [0.9, 0.2, 0.6, 0.4], [1, 0, 0, 1])
    assert traffic.shown()["task"]["task"] == "probability"
    assert (quality["figures"]["accuracy"], quality["figures"]["auc"]) == (0.5, 0.75)
    assert {"brier", "log_loss", "average_precision"} <= quality["figures"].keys()
    traffic.settings(task="forecast")
    traffic.look()
    figures = traffic.shown()["quality"]["figures"]
    assert {"mae", "rmse", "bias", "wape"} <= figures.keys()
    assert "mape" not in figures
    traffic.settings(task="ranking")
    traffic.look()
    assert "ndcg" not in traffic.shown()["quality"]["figures"]
    ids = traffic.capture(
        [{"dataframe_records": [{"amount": 1.0}, {"amount": 2.0}, {"amount": 3.0}]}],
        [{"predictions": [0.5, 0.9, 0.1]}],
    )
    traffic.look()
    labels = [{"prediction_id": ids[0], "row": at, "value": at % 2} for at in range(3)]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    assert traffic.shown()["quality"]["figures"]["mrr"] == 1
    traffic.settings(task="multi_label")
    ids = traffic.capture(
        [{"dataframe_records": [{"amount": 1.0}, {"amount": 2.0}]}],
        [{"predictions": [{"spam": 1, "toxic": 0}, {"spam": 1, "toxic": 1}]}],
    )
    traffic.look()
    labels = [
        {"prediction_id": ids[0], "row": 0, "value": ["spam"]},
        {"prediction_id": ids[0], "row": 1, "value": ["spam"]},
    ]
    traffic.post("labels", {"labels": labels})
    traffic.look()
    figures = traffic.shown()["quality"]["figures"]
    assert (figures["subset_accuracy"], figures["hamming_loss"]) == (0.5, 0.25)
