"""Tiers and their prices through the REST API."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from portal.accounts.models import AuditEvent
from portal.compute.models import Tier, TierPrice
from portal.core import clock
from portal.workloads.models import Lease
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import after, make_machine, make_tier, submit

pytestmark = pytest.mark.postgres

GIB = 1024**3
WANTED: dict[str, Any] = {
    "name": "GPU large",
    "slug": "gpu-large",
    "resources": {"cpu_millis": 8000, "memory_bytes": 64 * GIB, "gpus": 1},
    "gpu_model": "H100",
    "labels": {"zone": "a"},
    "nano_usd_per_hour": 2_500_000_000,
}


def test_an_administrator_offers_a_tier_and_everybody_sees_it(root: Api, people: Personas) -> None:
    answer = root.post("tiers", WANTED)
    assert answer.status_code == 201
    made = json_of(answer)
    assert {key: made[key] for key in WANTED} == WANTED
    charlie = Api.of(people.charlie)
    assert [tier["slug"] for tier in json_of(charlie.get("tiers"))["items"]] == ["gpu-large"]
    shown = json_of(charlie.get("tiers/gpu-large"))
    assert shown["free_tasks"] == 0, "no machine has joined"


def test_a_tier_says_how_many_of_it_would_fit_now(root: Api, people: Personas) -> None:
    make_machine(cpus=4, gib=16)
    tier = make_tier("small", cpus=1, gib=2)
    assert json_of(root.get("tiers/small"))["free_tasks"] == 4
    submit(people.vision, people.bob, tier)
    run_passes()
    (listed,) = [item for item in json_of(root.get("tiers"))["items"] if item["slug"] == "small"]
    assert listed["free_tasks"] == 3


def test_a_new_price_counts_from_now_on_and_the_old_one_is_never_lost(
    root: Api, people: Personas
) -> None:
    make_machine()
    tier = make_tier("small", nano_usd_per_hour=1_000)
    submit(people.vision, people.bob, tier)
    run_passes()
    with clock.frozen(after(60)):
        assert (
            json_of(root.patch("tiers/small", {"nano_usd_per_hour": 2_000}))["nano_usd_per_hour"]
            == 2_000
        )
    with clock.frozen(after(120)):
        root.patch("tiers/small", {"nano_usd_per_hour": 2_000})  # no change, no new price
        root.patch("tiers/small", {"nano_usd_per_hour": 3_000})
    prices = json_of(Api.of(people.charlie).get("tiers/small/prices"))["items"]
    assert [price["nano_usd_per_hour"] for price in prices] == [3_000, 2_000, 1_000]
    moments = [price["effective_from"] for price in prices]
    assert moments == sorted(moments, reverse=True)
    assert Lease.objects.get().nano_usd_per_hour == 1_000, "what runs keeps its price"
    changed = AuditEvent.objects.filter(verb="tier.change").order_by("pk").first()
    assert changed is not None
    assert (changed.before, changed.after) == (
        {"nano_usd_per_hour": 1_000},
        {"nano_usd_per_hour": 2_000},
    )


@pytest.mark.parametrize(
    "sql",
    ["UPDATE compute_tierprice SET nano_usd_per_hour = 0", "DELETE FROM compute_tierprice"],
)
def test_the_database_refuses_to_rewrite_prices(people: Personas, sql: str) -> None:
    make_tier("small", nano_usd_per_hour=1_000)
    with (
        pytest.raises(DatabaseError, match="only ever added"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
    for rewrite in (TierPrice.objects.all().delete, lambda: TierPrice.objects.update(tier=None)):
        with pytest.raises(TypeError, match="only ever added"):
            rewrite()


def test_a_withdrawn_tier_is_not_offered_and_still_known(root: Api, people: Personas) -> None:
    make_machine()
    tier = make_tier("small")
    job = submit(people.vision, people.bob, tier)
    assert json_of(root.patch("tiers/small", {"is_active": False}))["is_active"] is False
    assert "small" not in [item["slug"] for item in json_of(root.get("tiers"))["items"]]
    assert json_of(root.get("tiers/small"))["is_active"] is False
    run_passes()
    assert Lease.objects.filter(workload=job).exists(), "what was submitted before still runs"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slug": "GPU"}, "slug"),
        ({"name": ""}, "name"),
        ({"nano_usd_per_hour": -1}, "nano_usd_per_hour"),
        ({"nano_usd_per_hour": 1.5}, "nano_usd_per_hour"),
        ({"nano_usd_per_hour": 10**19}, "nano_usd_per_hour"),
        ({"resources": {"cpu_millis": 0, "memory_bytes": GIB}}, "resources"),
        ({"resources": {"cpu_millis": 1000, "memory_bytes": 0}}, "resources"),
        ({"resources": {"cpu_millis": -1, "memory_bytes": GIB}}, "resources.cpu_millis"),
        ({"resources": {"cpu_millis": 1000}}, "resources.memory_bytes"),
        ({"labels": {"": "x"}}, "labels..[key]"),
    ],
)
def test_a_bad_tier_is_refused_with_field_and_next_step(
    root: Api, change: dict[str, Any], field: str
) -> None:
    answer = root.post("tiers", WANTED | change)
    assert answer.status_code == 422
    problem = json_of(answer)
    assert problem["field"] == field
    assert problem["next_step"]
    assert not Tier.objects.exists()


def test_a_taken_slug_is_refused_and_changes_nothing(root: Api) -> None:
    root.post("tiers", WANTED)
    answer = root.post("tiers", WANTED | {"nano_usd_per_hour": 1})
    assert answer.status_code == 409
    assert (json_of(answer)["code"], json_of(answer)["field"]) == ("slug_taken", "slug")
    assert Tier.objects.get().nano_usd_per_hour == WANTED["nano_usd_per_hour"]


def test_what_a_tier_gives_never_changes(root: Api) -> None:
    root.post("tiers", WANTED)
    answer = root.patch("tiers/gpu-large", {"resources": {"cpu_millis": 1, "memory_bytes": 1}})
    assert answer.status_code == 422
    assert json_of(answer)["field"] == "resources"


def test_tiers_and_prices_are_listed_in_pages(root: Api) -> None:
    for number in range(3):
        make_tier(f"tier-{number}", nano_usd_per_hour=1)
    first = json_of(root.get("tiers?limit=2"))
    rest = json_of(root.get(f"tiers?limit=2&cursor={first['next_cursor']}"))
    slugs = [tier["slug"] for tier in first["items"] + rest["items"]]
    assert slugs == ["tier-2", "tier-1", "tier-0"]
    assert rest["next_cursor"] is None
    for price in (2, 3):
        root.patch("tiers/tier-0", {"nano_usd_per_hour": price})
    page = json_of(root.get("tiers/tier-0/prices?limit=2"))
    assert [price["nano_usd_per_hour"] for price in page["items"]] == [3, 2]
    assert page["next_cursor"]


def test_the_discount_of_preemptible_work_is_set_by_administrators(
    root: Api, people: Personas
) -> None:
    made = json_of(root.post("tiers", WANTED))
    full = WANTED["nano_usd_per_hour"]
    assert made["preemptible_discount"] == 50
    assert made["preemptible_nano_usd_per_hour"] == full // 2
    path = f"tiers/{made['slug']}"
    changed = json_of(root.patch(path, {"preemptible_discount": 90}))
    assert changed["preemptible_nano_usd_per_hour"] == full * 10 // 100
    event = AuditEvent.objects.filter(verb="tier.change").get()
    assert event.after == {"preemptible_discount": 90}
    assert Api.of(people.bob).patch(path, {"preemptible_discount": 0}).status_code == 403
    for bad in (91, -1, 12.5, "50", True):
        answer = root.patch(path, {"preemptible_discount": bad})
        assert answer.status_code == 422, bad
        assert json_of(answer)["errors"][0]["field"] == "preemptible_discount"


def test_the_effect_of_a_price_counts_discounts_of_what_runs(root: Api, people: Personas) -> None:
    make_machine()
    tier = make_tier("small", nano_usd_per_hour=1_000, preemptible_discount=25)
    submit(people.vision, people.bob, tier)
    submit(people.vision, people.bob, tier, is_preemptible=True)
    run_passes()
    effect = json_of(root.get("tiers/small/price-effect?nano_usd_per_hour=2000"))
    running = effect["running_now_nano_usd_per_hour"], effect["running_new_nano_usd_per_hour"]
    assert running == (1_000 + 750, 2_000 + 1_500)
