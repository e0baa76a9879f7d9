"""Spend and budgets through the API and the SDK."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portal.compute.models import Node
from portal.core.clock import frozen
from portal.spend import cost_by_tag, presenters, queries
from portal.spend.meter import meter
from portal.spend.models import Line
from portal.workloads.costs import unix_ms, workload_cost
from portal.workloads.models import Workload
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.spend.ledgers import close, make_lease, make_workload
from tests.portal.workloads.machines import make_tier

pytestmark = pytest.mark.postgres

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.fixture
def workloads(people: Personas, node: Node) -> list[Workload]:
    """Two that ended and one that runs, of two projects."""
    with frozen(NOW - timedelta(days=5)):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_007)
    made = []
    for project, by, begun, ended in (
        (people.vision, people.bob, NOW - timedelta(days=2), NOW - timedelta(hours=40)),
        (people.vision, people.alice, NOW - timedelta(hours=3), None),
        (people.other, people.charlie, NOW - timedelta(hours=9), NOW - timedelta(hours=7)),
    ):
        workload = make_workload(project, by, tier, begun)
        lease = make_lease(workload, node, begun)
        if ended is not None:
            close(lease, ended)
        made.append(workload)
    with frozen(NOW - timedelta(minutes=40)):
        meter()
    return made


def test_spend_is_split_in_every_way_and_equal_to_what_jobs_show(
    people: Personas, workloads: list[Workload]
) -> None:
    with frozen(NOW):
        shown = json_of(Api.of(people.bob).get("spend"))
        jobs = {
            workload.pk: workload_cost(workload, until_ms=unix_ms(NOW)) for workload in workloads
        }
        whole = json_of(Api.of(people.root).get("spend/installation"))
        other = json_of(Api.of(people.charlie).get("projects/other/spend?window=today"))
    runs = {run["workload"]: run["nano_usd"] for run in shown["runs"]}
    assert runs == {workload.pk: jobs[workload.pk] for workload in workloads[:2]}
    for split in ("by_project", "by_person", "by_tier", "by_kind", "by_day"):
        assert sum(share["nano_usd"] for share in shown[split]) == shown["nano_usd"]
        assert sum(share["nano_usd"] for share in whole[split]) == sum(jobs.values())
    assert [share["name"] for share in shown["by_project"]] == ["vision"]
    assert shown["nano_usd_per_hour"] == 3_600_000_007
    assert whole["runs"] == []
    assert other["nano_usd"] == jobs[workloads[2].pk]
    assert other["forecast"] is None


def test_spend_is_told_by_tag_and_by_experiment_live(people: Personas, node: Node) -> None:
    begun = NOW - timedelta(hours=3)
    with frozen(begun):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_000)
    runs: tuple[tuple[str, dict[str, str]], ...] = (
        ("digits", {"paper": "icml", "stage": "try"}),
        ("digits", {"paper": "icml"}),
        ("x", {}),
    )
    for name, tags in runs:
        workload = make_workload(people.vision, people.bob, tier, begun, name=name, tags=tags)
        make_lease(workload, node, begun)
    with frozen(NOW - timedelta(hours=1)):
        meter()
    with frozen(NOW):
        shown = json_of(Api.of(people.bob).get("spend?window=today"))
        week = json_of(Api.of(people.bob).get("spend?window=7d"))
        stranger = json_of(Api.of(people.charlie).get("spend"))
        whole = json_of(Api.of(people.root).get("spend/installation"))
    an_hour = 3_600_000_000
    for report in (shown, week):
        assert {tag["name"]: tag["nano_usd"] for tag in report["by_tag"]} == {
            "paper=icml": 6 * an_hour,
            "stage=try": 3 * an_hour,
        }
        assert [
            (group["noun"], group["name"], group["nano_usd"]) for group in report["groups"]
        ] == [
            ("experiment", "digits", 6 * an_hour),
            ("experiment", "x", 3 * an_hour),
        ]
        assert {group["done"] for group in report["groups"]} == {None}
    # Names of experiments and tags are of the projects they stand in.
    for report in (stranger, whole):
        assert report["by_tag"] == report["groups"] == []


def test_spend_says_what_its_lists_leave_out(
    people: Personas, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queries, presenters):
        monkeypatch.setattr(module, "RUNS_SHOWN", 2)
    for module in (cost_by_tag, presenters):
        monkeypatch.setattr(module, "LABELS_SHOWN", 2)
    begun = NOW - timedelta(hours=3)
    with frozen(begun):
        tier = make_tier("small", nano_usd_per_hour=3_600_000_000)
    for number in range(4):
        workload = make_workload(
            people.vision, people.bob, tier, begun, name=f"e{number}", tags={"n": str(number)}
        )
        close(make_lease(workload, node, begun), begun + timedelta(hours=1))
    with frozen(NOW - timedelta(hours=1)):
        meter()
    with frozen(NOW):
        for window in ("today", "7d"):
            shown = json_of(Api.of(people.bob).get(f"spend?window={window}"))
            assert len(shown["runs"]) == 2
            listed = sum(run["nano_usd"] for run in shown["runs"])
            assert shown["runs_left_out_nano_usd"] == shown["nano_usd"] - listed > 0
            assert (len(shown["by_tag"]), shown["are_tags_left_out"]) == (2, True)
            assert (len(shown["groups"]), shown["groups_left_out"]) == (2, ["job"])
        page = browser_of(people.bob).get("/spend?window=today").content.decode()
        monkeypatch.undo()
        shown = json_of(Api.of(people.bob).get("spend?window=today"))
    assert "Other runs cost" in page
    assert "Only the 2 with the highest cost." in page
    assert "By tag, the 2 with the highest cost" in page
    assert shown["runs_left_out_nano_usd"] == 0
    assert (shown["are_tags_left_out"], shown["groups_left_out"]) == (False, [])


def test_windows_add_up(people: Personas, workloads: list[Workload]) -> None:
    api = Api.of(people.bob)
    with frozen(NOW):
        month = json_of(api.get("spend?window=2026-11"))
        days = json_of(api.get("spend?window=7d"))
        assert json_of(api.get("spend?window=2026-10"))["nano_usd"] == 0
        refused = json_of(api.get("spend?window=2026-13"))
    assert month["nano_usd"] == days["nano_usd"]
    assert days["runs"] == month["runs"]
    assert refused["code"] == "no_such_window"


def test_an_export_has_focus_columns_and_adds_up_to_what_is_shown(
    people: Personas, workloads: list[Workload]
) -> None:
    api = Api.of(people.vera)
    with frozen(NOW):
        shown = json_of(api.get("projects/vision/spend"))
        answer: Any = api.get("projects/vision/spend/export")
        text = b"".join(answer.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {"BilledCost", "ChargePeriodStart", "BillingCurrency", "SubAccountName"} <= set(rows[0])
    assert sum(int(row["x_BilledNanoUsd"]) for row in rows) == shown["nano_usd"]
    assert {row["SubAccountName"] for row in rows} == {"vision"}
    assert [row["x_IsLive"] for row in rows].count("true") >= 1


def test_budgets_are_set_shown_changed_overridden_and_removed(
    people: Personas, workloads: list[Workload]
) -> None:
    alice, vera, charlie = Api.of(people.alice), Api.of(people.vera), Api.of(people.charlie)
    with frozen(NOW):
        budget = {"project": "vision", "limit_nano_usd": 10**10}
        assert vera.post("budgets", budget).status_code == 403
        assert charlie.post("budgets", budget).status_code == 404
        made = json_of(alice.post("budgets", budget))
        assert made["spent_nano_usd"] == json_of(alice.get("projects/vision/spend"))["nano_usd"]
        assert made["is_used_up"]
        assert made["overshoot_nano_usd"] == made["spent_nano_usd"] - 10**10
        path = f"budgets/{made['id']}"
        assert json_of(vera.get(path))["id"] == made["id"]
        assert charlie.get(path).status_code == 404
        assert vera.patch(path, {"limit_nano_usd": 1}).status_code == 403
        body = {"hours": 1, "reason": "a demo"}
        assert json_of(alice.post(f"{path}/override", body))["is_used_up"] is False
        raised = json_of(alice.patch(path, {"limit_nano_usd": 10**12}))
        assert raised["left_nano_usd"] == 10**12 - raised["spent_nano_usd"]
        assert json_of(charlie.get("budgets"))["items"] == []
        assert len(json_of(Api.of(people.root).get("budgets"))["items"]) == 1
        assert alice.delete(path).status_code == 204
        assert alice.get(path).status_code == 404


def test_a_price_is_looked_at_before_it_is_set(people: Personas, workloads: list[Workload]) -> None:
    root = Api.of(people.root)
    with frozen(NOW):
        effect = json_of(root.get("tiers/small/price-effect?nano_usd_per_hour=7200000014"))
        assert effect["running"] == 1
        assert effect["running_new_nano_usd_per_hour"] == 7_200_000_014
        spent = sum(line.nano_usd for line in Line.objects.exclude(kind="capacity"))
        assert effect["last_30_days_nano_usd"] == spent
        assert effect["last_30_days_new_nano_usd"] == 2 * spent


def test_rates_of_bare_resources_are_priced_from_now_on(people: Personas) -> None:
    root, bob = Api.of(people.root), Api.of(people.bob)
    assert bob.put("spend/rates/gpu", {"nano_usd_per_hour": 5}).status_code == 403
    assert root.put("spend/rates/beer", {"nano_usd_per_hour": 5}).status_code == 404
    assert json_of(root.put("spend/rates/gpu", {"nano_usd_per_hour": 5}))["nano_usd_per_hour"] == 5
    rates = {rate["resource"]: rate for rate in json_of(bob.get("spend/rates"))["items"]}
    assert rates["gpu"]["nano_usd_per_hour"] == 5
    assert rates["cpu"]["effective_from"] is None
