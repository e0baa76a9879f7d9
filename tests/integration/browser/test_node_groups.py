"""A node group from its form to its end, in a real browser, with nodes that are real processes."""

import re

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import Open
from tests.integration.browser.test_axe import barriers_in_both, overflow
from tests.portals import RunningPortal

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
STARTS_WITHIN_MS = 120_000


def test_an_administrator_creates_a_group_follows_its_node_and_removes_it(
    portal: RunningPortal, window: Open, axe: str
) -> None:
    root = window("root", bypass_csp=True)
    page = root.go("/settings/node-groups").page
    root.says("No node groups yet")
    page.get_by_role("link", name="New node group").click()
    page.get_by_label("Name").fill("burst")
    page.get_by_label("Provisioner", exact=True).select_option("local")
    page.get_by_label("CPUs of a node").fill("0.25")
    page.get_by_label("Memory of a node in GiB").fill("0.5")
    page.get_by_label("Least nodes").fill("5")
    page.get_by_label("Price of a node-hour in dollars").fill("0.90")
    page.get_by_role("button", name="Create node group").click()
    expect(page.locator("#id_min_nodes_error")).to_contain_text("from 0 to max_nodes")
    page.get_by_label("Least nodes").fill("1")
    page.get_by_role("button", name="Create node group").click()
    root.toast("Node group burst created.")
    root.is_at("/settings/node-groups/burst")

    # The least of the group is made without any work.
    shown = page.locator("#node-group")
    expect(shown).to_contain_text("1 of 4", timeout=STARTS_WITHIN_MS)
    expect(shown.get_by_text("joined")).to_be_visible()
    faults = []
    for path in ("", "/new", "/burst"):
        root.go(f"/settings/node-groups{path}")
        faults += [*barriers_in_both(root, axe), *overflow(root)]
    assert faults == []

    page.get_by_role("link", name="Remove…").click()
    root.says("It still has machines (1).")
    page.get_by_role("button", name="Remove burst").click()
    root.toast("Node group burst still has 1 machine.")
    page.get_by_role("button", name="Close node group").click()
    root.toast("burst is closed")
    with portal.client("root") as api:
        (name,) = [row["name"] for row in api.get("/node-groups/burst/machines").json()["items"]]
        api.post(f"/nodes/{name}/drain", json={}).raise_for_status()
    expect(shown).to_contain_text(re.compile("0 of 4"), timeout=STARTS_WITHIN_MS)
    expect(shown.get_by_text("released")).to_be_visible(timeout=STARTS_WITHIN_MS)
    page.get_by_role("link", name="Remove…").click()
    root.says("It has no machine.")
    page.get_by_role("button", name="Remove burst").click()
    root.toast("Node group burst removed.")
