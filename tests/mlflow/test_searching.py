"""`runs/search` is answered as MLflow's own server answers it, whoever reads the filter."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from portal.api.mlflow.upstream import WORKSPACE
from portal.experiments.adapters.mlflow.batches import UnsupportedRequest
from portal.experiments.adapters.mlflow.search_filters import conditions_of, sort_fields_of
from portal.experiments.models.runs import LARGEST
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.postgres

_SEARCH = "/api/2.0/mlflow/runs/search"

FILTERS = [
    "metrics.loss < 0.5",
    "metrics.loss>=0.25",
    "metric.loss = 0.5",
    "metrics.loss != 0.5",
    "metrics.loss > -1.5e-3 and metrics.loss <= 1",
    "metrics.loss > 1e300",
    "metrics.`val loss` < 2",
    'metrics."val loss" > 0',
    "metrics.val.acc > 0",
    "metrics.value > 0",
    "params.lr = '0.1'",
    "param.lr != '0.1'",
    'parameters.lr = "0.1"',
    "params.lr LIKE '0._'",
    "params.lr like '0.%'",
    "params.opt ilike 'S%'",
    "params.opt like 'S%'",
    "params.opt = ''",
    "params.order = 'first'",
    "params.date = '2026' and params.end = 'x'",
    "params.lr is null",
    "params.lr IS NOT NULL AND tags.team is null",
    "parameter.lr = '0.1' and params.opt = 'sgd' and metrics.loss < 1",
    "tags.team = 'a%b'",
    "tags.team like 'a*b'",
    "tags.team like 'a[x]b'",
    "tag.team ILIKE 'A%B'",
    "tags.mlflow.runName like 'run%'",
    "tags.`mlflow.runName` = 'run 3'",
    "tags.`odd -- key` = 'x; drop'",
    "tags.note = 'ä'",
    "tags.note ilike 'Ä'",
    "attributes.status = 'FINISHED'",
    "status != 'FINISHED'",
    "attribute.status like 'F%'",
    "run_name = 'run 3'",
    "attributes.run_name ilike 'RUN _'",
    "run.user_id = 'alice@example.org'",
    "attr.artifact_uri like '%artifacts'",
    "start_time > 1700000003000",
    "attributes.start_time <= 1700000003000.5",
    "attributes.end_time > 0",
    "created >= 1700000005000",
    "attributes.run_id IN ('{one}', '{two}')",
    "run_id in ('{one}')",
    "run_id NOT IN ('{one}','{two}')",
    "run_id = '{one}'",
    "datasets.name = 'digits'",
    "dataset.name != 'digits'",
    "datasets.digest like 'd%' and datasets.context = 'train'",
    "datasets.name IN ('digits', 'iris')",
    "datasets.context in ('eval') and metrics.loss < 9",
    "metrics.loss < 9 and metrics.none > 1",
]
# What only MLflow reads, or refuses; whether it is right is not for us to say.
ODD = [
    "params.lr = 'it''s'",
    "params.lr = 'a' or params.lr = 'b'",
    "params.lr in ('0.1')",
    "params.case = 'x'",
    "params.a.from = 'x'",
    "metrics.loss is null",
    "metrics.loss > '1'",
    "metrics.loss == 0.5",
    "metrics.loss <> 0.5",
    "attributes.name = 'run 3'",
    "attributes.`run name` = 'run 3'",
    "attributes.status in ('FINISHED')",
    "params.`lr = '1'",
    "loss < 1",
    "METRICS.loss < 1",
    "metrics.loss < 1 -- and more",
    "metrics.val/acc > 0",
    "params.lr = '0.1' ; select",
    "datasets.size = 'x'",
    "run_id in ()",
]
ORDERS = [
    [],
    ["start_time"],
    ["attributes.start_time DESC"],
    ["attribute.start_time asc"],
    ["created desc"],
    ["metrics.loss"],
    ["metrics.loss DESC"],
    ["metrics.`val loss` ASC", "start_time ASC"],
    ["params.lr", "metrics.loss desc"],
    ["params.opt DESC"],
    ["tags.team"],
    ["tags.mlflow.runName DESC"],
    ["tags.`odd -- key`"],
    ["run_name"],
    ["attributes.status DESC", "attributes.end_time"],
    ["run_id"],
    ["user_id", "artifact_uri DESC"],
    ["metrics.none", "params.none DESC"],
]
ODD_ORDERS = [
    ["metrics.loss", "metrics.loss DESC"],
    ["loss"],
    ["metrics.loss UP"],
    ["datasets.name"],
    ["metrics.val loss"],
    [""],
]


@dataclass(frozen=True)
class Both:
    """The same request, by the door and by MLflow's server behind it."""

    door: httpx.Client
    server: httpx.Client
    experiments: list[str]
    runs: list[str]

    def ask(self, **body: Any) -> Any:
        """Return what both answer, which must be the same."""
        query = {"experiment_ids": self.experiments, "max_results": 100} | body
        ours, theirs = (client.post(_SEARCH, json=query) for client in (self.door, self.server))
        assert ours.status_code == theirs.status_code, (query, ours.text, theirs.text)
        assert _plain(ours.json()) == _plain(theirs.json()), query
        return ours.json()

    def text(self, text: str) -> str:
        """Return a filter with ids in it."""
        return text.replace("{one}", self.runs[1]).replace("{two}", self.runs[4])


def _plain(answer: Any) -> Any:
    """Return an answer with its lists of values in one order: neither server promises any.

    MLflow's server has the largest number where infinity was logged; the door says what it was.
    """
    for run in answer.get("runs", []):
        for metric in run["data"].get("metrics", []):
            if abs(float(metric["value"])) >= LARGEST:
                metric["value"] = float(metric["value"]) > 0
        for values in run["data"].values():
            values.sort(key=lambda value: value["key"])
        for inputs in run.get("inputs", {}).values():
            inputs.sort(key=json.dumps)
    return answer


def _log(rest: Any, experiment: str, number: int) -> str:
    """Make a run whose values repeat, lack and are no numbers now and then."""
    start = 1_700_000_000_000 + number // 2 * 1000
    body = {"experiment_id": experiment, "start_time": start, "run_name": f"run {number}"}
    run = str(rest.post("runs/create", body | {"user_id": "bob"})["run"]["info"]["run_id"])
    losses = [0.5, 0.25, "NaN", 0.5, "Infinity", 1, "-Infinity", None]
    metrics = {"loss": losses[number % 8], "val loss": number % 3, "val.acc": 1, "value": 1}
    params = {
        "lr": ["0.1", "0.2", None][number % 3],
        "opt": ["sgd", "SGD", "", None][number % 4],
        "order": "first" if number % 2 else None,
        **({"date": "2026", "end": "x"} if number % 5 == 0 else {}),
    }
    teams = ["a%b", "aXb", "a*b", "a[x]b", None]
    notes = ["ä", "Ä", None]
    tags = {"team": teams[number % 5], "note": notes[number % 3], "odd -- key": "x; drop"}
    rest.post(
        "runs/log-batch",
        {
            "run_id": run,
            "metrics": [
                {"key": key, "value": value, "timestamp": start, "step": 0}
                for key, value in metrics.items()
                if value is not None
            ],
            "params": _listed(params),
            "tags": _listed(tags),
        },
    )
    if number % 3 == 0:
        dataset = {"name": ["digits", "iris"][number % 2], "digest": f"d{number}", "source": "s"}
        context = [{"key": "mlflow.data.context", "value": ["train", "eval"][number % 2]}]
        listed = [{"dataset": dataset | {"source_type": "local"}, "tags": context}]
        rest.post("runs/log-inputs", {"run_id": run, "datasets": listed})
    if number % 2:
        rest.post("runs/update", {"run_id": run, "status": "FINISHED", "end_time": start + number})
    return run


def _listed(values: dict[str, str | None]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items() if value is not None]


@pytest.fixture(scope="session")
def both(tracking: TrackingPortal) -> Iterator[Both]:
    """Two experiments of alice, and ways to ask for them.

    For as long as the portal they are in: a process of `-n` may come back to this module.
    """
    rest = tracking.client("alice")
    experiments = [rest.new_experiment(name) for name in ("searched", "searched too")]
    runs = [_log(rest, experiments[number % 2], number) for number in range(16)]
    rest.post("runs/delete", {"run_id": runs[-1]})
    slug = tracking.projects["alice"]
    project = tracking.portal.client("alice").get(f"/projects/{slug}").json()["id"]
    transport = httpx.HTTPTransport(uds=str(tracking.socket))
    with httpx.Client(
        transport=transport,
        base_url="http://tracking",
        headers={WORKSPACE: project} | tracking.credentials,
        timeout=60,
    ) as server:
        yield Both(rest.http, server, experiments, runs)


@pytest.mark.thorough
def test_filters_find_what_mlflow_finds(both: Both) -> None:
    hits = 0
    for text in map(both.text, FILTERS):
        assert conditions_of(text), text
        hits += bool(both.ask(filter=text).get("runs"))
    assert hits > len(FILTERS) * 3 // 4


def test_filters_that_are_not_plain_are_left_to_mlflow(both: Both) -> None:
    for text in map(both.text, ODD):
        with pytest.raises(UnsupportedRequest):
            conditions_of(text)
        both.ask(filter=text)


def test_orders_are_mlflows(both: Both) -> None:
    for order in ORDERS:
        assert len(sort_fields_of(order)) == len(order)
        assert len(both.ask(order_by=order)["runs"]) == 15
    for order in ODD_ORDERS:
        with pytest.raises(UnsupportedRequest):
            sort_fields_of(order)
        both.ask(order_by=order)


@pytest.mark.thorough
def test_pages_and_views_are_mlflows(both: Both) -> None:
    chosen = random.Random(7)  # noqa: S311 - the same searches each time
    for _ in range(12):
        body = {
            "filter": both.text(chosen.choice([*FILTERS, ""])),
            "order_by": chosen.choice(ORDERS),
            "run_view_type": chosen.choice(["ACTIVE_ONLY", "DELETED_ONLY", "ALL"]),
            "max_results": chosen.choice([1, 3, 7]),
        }
        page = both.ask(**body)
        while token := page.get("next_page_token"):
            page = both.ask(**body, page_token=token)
