"""The page that compares runs: values that differ, code and packages, importance of parameters."""

import math
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pytest_django import Settings

from portal.experiments.importance import parameter_importance
from portal.experiments.models import Experiment, Run
from portal.experiments.packages import PackageChange, package_changes, parse_packages
from portal.experiments.ports import RunFacts, Stage
from tests.personas import Personas
from tests.portal.experiments.test_runs_api import write
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


@pytest.fixture(autouse=True)
def _place(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = tmp_path.as_uri()


@pytest.fixture
def digits(people: Personas) -> Experiment:
    """An experiment of vision without runs."""
    return make_experiment(people.vision)


def compare_url(*runs: Run, **query: str) -> str:
    """The address of the page that compares runs."""
    return f"/p/vision/compare?{urlencode([*(('run', run.pk) for run in runs), *query.items()])}"


def rows_of(page: Any) -> dict[str, list[str]]:
    """The rows of the table of values: the text of each run's cell by the name of the value."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html_of(page).partition("<tbody>")[2], re.DOTALL)
    texts = {}
    for row in rows:
        name = re.search(r'title="Sort the runs by ([^"]*)"', row)
        if name:
            cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
            texts[name[1]] = [
                re.sub(r"<[^>]+>", " ", cell).replace("\u2212", "-").strip() for cell in cells
            ]
    return texts


def names_of(page: Any) -> list[str]:
    """The names of the runs in the order of the columns."""
    return [row.run.name for row in page.context["table"].runs]


def test_values_that_differ_come_first_with_differences_from_the_baseline(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    first = make_run(
        digits,
        "first",
        metrics={"a": 1.0, "loss": 0.4, "zero": 0.0, "odd": math.nan, "top": math.inf},
        params={"lr": "0.1", "opt": "adam", "seed": "7"},
    )
    second = make_run(
        digits,
        "second",
        metrics={"a": 1.0, "loss": 0.5, "zero": 2.0, "odd": math.nan, "top": 1.0},
        params={"lr": "0.05", "opt": "<b>sgd", "seed": "7"},
    )
    third = make_run(digits, "third", metrics={"loss": math.nan}, params={"lr": "0.2"})
    vera = browse(people.vera)
    page = vera.get(compare_url(first, second))
    assert rows_of(page) == {
        "lr": ["0.1", "0.05 -0.05 (-50 %)"],
        "opt": ["adam", "&lt;b&gt;sgd"],
        "loss": ["0.4", "0.5 +0.1 (+25 %)"],
        "top": ["∞", "1"],
        "zero": ["0", "2 +2"],
        "seed": ["7", "7"],
        "a": ["1", "1"],
        "odd": ["NaN", "NaN"],
    }
    assert "5 of 8 parameters and metrics differ." in text_of(page)
    only = rows_of(vera.get(compare_url(first, second, only="1")))
    assert list(only) == ["lr", "opt", "loss", "top", "zero"]
    # Another baseline is the first column, and a missing value is said to be missing.
    other = vera.get(compare_url(first, second, third, base=second.pk, find="LOSS"))
    assert names_of(other) == ["second", "first", "third"]
    assert rows_of(other) == {"loss": ["0.5", "0.4 -0.1 (-20 %)", "NaN"]}
    assert rows_of(vera.get(compare_url(first, third)))["opt"] == ["adam", "not logged"]


def test_runs_are_sorted_by_a_value_and_those_without_it_come_last(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    values = {"base": 5.0, "odd": math.nan, "high": 10.0, "low": 9.0, "top": math.inf}
    runs = [
        make_run(digits, name, metrics={"loss": value}, params={"n": str(value)})
        for name, value in values.items()
    ]
    none = make_run(digits, "none")
    vera = browse(people.vera)
    up = vera.get(compare_url(*runs, none, sort="metrics.loss"))
    assert names_of(up) == ["base", "low", "high", "top", "odd", "none"]
    down = vera.get(compare_url(*runs, none, sort="-metrics.loss"))
    assert names_of(down) == ["base", "top", "high", "low", "odd", "none"]
    wrong = vera.get(compare_url(*runs, sort="metrics.nothing"))
    assert "no value to sort by as the address asks" in text_of(wrong)
    assert names_of(wrong) == list(values)


def test_many_values_of_many_runs_are_on_several_pages(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    runs = [
        make_run(digits, f"run-{n}", params={f"p{at:03}": str(n * at) for at in range(205)})
        for n in range(2)
    ]
    vera = browse(people.vera)
    page = vera.get(compare_url(*runs))
    assert len(rows_of(page)) == 200
    assert "Rows 1 to 200 of 205 are shown." in text_of(page)
    part = vera.get(compare_url(*runs, row="200"), headers={"HX-Request": "true"})
    assert list(rows_of(part)) == ["p201", "p202", "p203", "p204", "p000"]
    assert "<html" not in html_of(part)


def test_packages_are_compared_by_name_and_version() -> None:
    before = parse_packages("numpy==1.26.4\nPy_Yaml==6.0 # why\n-r more.txt\nscipy==1.1\n./here\n")
    after = parse_packages("numpy==2.0.0 --hash=sha256:aa\npy-yaml==6.0\ntorch>=2\n")
    assert before.unread == 1
    assert package_changes(before, after) == [
        PackageChange("numpy", "1.26.4", "2.0.0"),
        PackageChange("scipy", "1.1", None),
        PackageChange("torch", None, ">=2"),
    ]


def test_code_and_packages_of_two_runs_are_compared_and_gaps_are_named(
    people: Personas, browse: Browse, digits: Experiment, tmp_path: Path
) -> None:
    tags = {"mlflow.source.name": "train.py", "slipway.git.dirty": "true"}
    runs = [
        make_run(digits, name, tags={**tags, "mlflow.source.git.commit": commit, **more})
        for name, commit, more in (
            ("first", "a" * 40, {"slipway.python": "3.11.9"}),
            ("second", "b" * 40, {}),
            ("bare", "b" * 40, {}),
        )
    ]
    diff = b"-a<script>\n+b"
    for run, version in zip(runs, ("1.0", "2.0"), strict=False):
        write(tmp_path, run, "slipway/packages.txt", f"numpy=={version}\npip==24.0\n".encode())
        write(tmp_path, run, "slipway/uncommitted.diff", diff)
    vera = browse(people.vera)
    address = compare_url(*runs).replace("/compare?", "/compare/code?")
    page = vera.get(address)
    words = text_of(page)
    compared = page.context["compared"]
    assert [fact.label for fact in compared.facts] == ["Commit", "Python"]
    assert "3.11.9 not recorded" in words
    assert "Neither run has recorded: Entry point, Branch" in words
    assert "numpy other version 1.0 2.0" in words
    assert "1 package differs, 1 is equal." in words
    assert "The uncommitted changes of both runs are the same." in words
    assert "<script>\n+b" not in html_of(page)
    bare = text_of(vera.get(f"{address}&with={runs[2].pk}"))
    assert "Packages cannot be compared. bare has recorded none." in bare
    # The baseline is chosen by the address too; runs of others are not there.
    other = vera.get(f"{address}&base={runs[1].pk}&with={runs[0].pk}").context["compared"]
    assert [other.base.facts.name, other.run.facts.name] == ["second", "first"]
    foreign = make_run(make_experiment(people.other), "foreign")
    hidden = vera.get(compare_url(runs[0], foreign).replace("/compare?", "/compare/code?"))
    assert "Select at least two." in text_of(hidden)
    assert "foreign" not in html_of(hidden)


def run_facts(number: int, metrics: dict[str, float], params: dict[str, str]) -> RunFacts:
    """A run with these values."""
    name = f"run-{number}"
    return RunFacts(name, 1, name, "FINISHED", Stage.ACTIVE, "bob", 1, 2, metrics, params)


def test_importance_finds_what_moves_a_metric_and_calls_the_rest_chance() -> None:
    runs = []
    for n in range(200):
        curve, kind = (n * 37 % 200) / 100 - 1, n % 2
        params = {
            "curve": f"{curve}",  # matters, in no single direction
            "kind": "ab"[kind],
            "twin": "cd"[kind],
            "lr": f"{(n * 73 % 200) / 200}",
            "seed": f"seed {n}",
            "same": "1",
            **{f"noise-{at}": str((n * (at + 3) ** 3 // 7) % 5) for at in range(20)},
        }
        loss = 4 * curve**2 + kind + 3 * (n * 73 % 200) / 200
        runs.append(run_facts(n, {"loss": loss}, params))
    runs[7].metrics["loss"] = math.nan
    del runs[8].metrics["loss"]
    started = time.process_time()
    importance = parameter_importance(runs, "loss")
    assert time.process_time() - started < 5
    assert (importance.runs, importance.left_out, importance.unjudged) == (198, 2, ["seed"])
    first = importance.parameters[0]
    assert first.name == "curve"
    assert first.importance > 0.4
    assert abs(first.correlation or 0) < 0.2
    by_name = {it.name: it for it in importance.parameters}
    assert {it.name for it in importance.parameters if it.is_significant} == {
        *("curve", "kind", "twin", "lr")
    }
    assert (by_name["lr"].correlation or 0) > 0.4
    assert by_name["kind"].correlation is None
    assert by_name["kind"].like == ["twin"]
    assert "same" not in by_name
    assert parameter_importance(runs, "loss") == importance


def test_importance_of_few_runs_and_of_one_value_is_refused() -> None:
    few = [run_facts(n, {"loss": float(n)}, {"lr": str(n % 2)}) for n in range(9)]
    refused = parameter_importance(few, "loss")
    assert "at least 10 runs with a finite value of loss; there are 9." in refused.fault
    assert refused.parameters == ()
    same = [run_facts(n, {"loss": 1.0}, {"lr": str(n % 2)}) for n in range(12)]
    assert "the same value" in parameter_importance(same, "loss").fault


def test_importance_is_shown_for_compared_runs_and_for_an_experiment(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    runs = [
        make_run(
            digits,
            f"run-{n}",
            minute=n,
            metrics={"loss": float(n % 2) + n / 100, "acc": 1.0},
            params={"opt": ("adam", "<i>sgd")[n % 2], "lr": f"{n % 3}"},
        )
        for n in range(12)
    ]
    vera = browse(people.vera)
    few = compare_url(*runs[:9], target="loss").replace("/compare?", "/compare/importance?")
    assert "there are 9." in text_of(vera.get(few))
    page = vera.get(f"/p/vision/compare/importance?experiment={digits.pk}&target=loss")
    words = text_of(page)
    assert "From 12 runs of the experiment." in words
    assert re.search(r"opt 0\.\d\d no number 0\.\d{3}", words)
    assert "epsilon squared" in words
    equal = vera.get(f"/p/vision/compare/importance?experiment={digits.pk}&target=acc")
    assert "acc has the same value in all of these runs." in text_of(equal)
    foreign = make_experiment(people.other)
    make_run(foreign, "foreign", metrics={"loss": 1.0})
    hidden = vera.get(f"/p/vision/compare/importance?experiment={foreign.pk}")
    assert "There are no runs." in text_of(hidden)
