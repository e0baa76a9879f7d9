"""Main pages and what opens on them have no serious barrier, light and wide, dark and narrow.

`test_all_pages` does the same with every page of the URL table.
"""

import secrets
from typing import Any

import pytest

from tests.integration.browser.conftest import LOOKS, PATIENCE_MS, Open, Window
from tests.portals import RunningPortal
from tests.turns import in_turns

pytestmark = pytest.mark.browser

ENTRANCES = ("/account/login", "/account/password/reset", "/account/password/reset/sent")
OF_A_PROJECT = (
    *("", "/members", "/secrets", "/secrets/write", "/audit", "/settings", "/archive"),
    *("/endpoints", "/new-endpoint", "/registry-rules", "/models", "/register-model"),
)
OF_A_TEAM = ("", "/members", "/audit", "/settings")
OF_A_PERSON = (
    "/",
    "/projects",
    "/projects/new",
    "/projects?q=nothing-like-it",
    "/teams",
    "/teams/new",
    "/settings/profile",
    "/account/password/change",
    "/settings/sessions",
    "/settings/tokens",
    "/settings/tokens/new",
    "/settings/audit",
    "/settings/people",
    "/account/logout",
    "/notifications",
    "/docs",
    "/docs/training",
    "/no/such/page",
)
# Contrast is checked on a page at rest: a colour on its way is nobody's colour.
_AT_REST = "*, *::before, *::after { transition: none !important; animation: none !important; }"


def barriers(window: Window, axe: str) -> list[str]:
    """What axe-core finds serious or critical on the page as it stands."""
    if not window.page.evaluate("typeof axe !== 'undefined'"):
        window.page.evaluate(axe)
    violations: Any = window.page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
    )
    return [
        f"{window.page.url}: {rule['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for rule in violations
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def barriers_in_both(window: Window, axe: str) -> list[str]:
    """What `barriers` finds on the page as it stands, light and wide, then dark and narrow.

    Contrast depends on the theme alone, and layout on the width.
    """
    window.page.add_style_tag(content=_AT_REST)
    violations = []
    for theme, size in LOOKS:
        window.look(theme, size)
        violations += [
            f"{theme}, {size['width']} px: {violation}" for violation in barriers(window, axe)
        ]
    return violations


_TOO_WIDE = """() => {
    const over = document.documentElement.scrollWidth - innerWidth;
    const isBeyond = (one) => one.getBoundingClientRect().right > innerWidth;
    const all = [...document.querySelectorAll("body *")];
    const beyond = all.filter((one) => isBeyond(one) && !one.closest(".table-responsive"));
    const first = beyond.slice(0, 5).map((one) => one.outerHTML.slice(0, 80));
    return over > 0 ? `${over} px too wide: ${first}` : "";
}"""


def overflow(window: Window) -> list[str]:
    """Say so when a page is wider than its window, wide or narrow."""
    overflows = []
    for theme, size in LOOKS:
        window.look(theme, size)
        over = window.page.evaluate(_TOO_WIDE)
        overflows += [f"{window.page.url} at {size['width']} is {over}"] if over else []
    return overflows


@pytest.fixture(scope="module")
def furnished(portal: RunningPortal) -> tuple[str, str]:
    """A project and a team in which there is something to see; root owns both."""
    name = secrets.token_hex(4)
    with portal.client("root") as root:
        team = root.post("/teams", json={"name": f"Team {name}"}).json()["slug"]
        fields = {"name": f"Project {name}", "team": team, "description": "What it is about."}
        project = root.post("/projects", json=fields).json()["slug"]
        root.put(f"/projects/{project}/secrets/HF_TOKEN", json={"value": "x"}).raise_for_status()
        root.patch(f"/projects/{project}", json={"name": f"Renamed {name}"}).raise_for_status()
        for group in (f"/projects/{project}", f"/teams/{team}"):
            invite = {"email": f"guest-{name}@example.org", "role": "viewer"}
            root.post(f"{group}/invitations", json=invite).raise_for_status()
        invite = {"email": "root@example.org", "role": "viewer"}
    with portal.client("alice") as alice:
        other = alice.post("/projects", json={"name": f"Other {name}"}).json()["slug"]
        alice.post(f"/projects/{other}/invitations", json=invite).raise_for_status()
    return str(project), str(team)


def test_no_page_has_a_serious_barrier(window: Open, axe: str, furnished: tuple[str, str]) -> None:
    project, team = furnished
    root = window("root", bypass_csp=True)
    pages = [*OF_A_PERSON]
    pages += [f"/p/{project}{page}" for page in OF_A_PROJECT]
    pages += [f"/t/{team}{page}" for page in OF_A_TEAM]
    violations = []
    for page in in_turns(pages, "axe", one_in=6):
        violations += barriers_in_both(root.go(page), axe)
    assert violations == []


def test_no_entrance_has_a_serious_barrier(window: Open, axe: str) -> None:
    visitor = window(bypass_csp=True)
    violations = []
    for page in ENTRANCES:
        violations += barriers_in_both(visitor.go(page), axe)
    visitor.go("/account/login").sign_in("nobody", "wrong")
    visitor.page.wait_for_selector("[role=alert]")
    assert violations + barriers_in_both(visitor, axe) == []


def test_nothing_that_opens_has_a_serious_barrier(
    window: Open, axe: str, furnished: tuple[str, str]
) -> None:
    project, _ = furnished
    root = window("root", bypass_csp=True)
    page = root.page
    violations = []
    for theme, size in LOOKS:
        root.go(f"/p/{project}/members").look(theme, size)
        page.add_style_tag(content=_AT_REST)
        page.keyboard.press("Control+k")
        page.wait_for_selector("[role=option]")
        violations += barriers(root, axe)
        page.keyboard.press("Escape")
        for name in ("Switch project", "Your account"):
            page.get_by_role("button", name=name).click()
            violations += barriers(root, axe)
            page.keyboard.press("Escape")
        page.get_by_label("E-mail address").first.fill("not an address at all")
        page.locator("#invite form").evaluate("form => form.noValidate = true")
        page.get_by_role("button", name="Invite").click()
        page.wait_for_selector("#id_email_error")
        violations += barriers(root, axe)
        page.get_by_label("E-mail address").first.fill(f"x{secrets.token_hex(4)}@example.org")
        page.get_by_role("button", name="Invite").click()
        page.wait_for_selector("#invitation-link")
        violations += barriers(root, axe)
    assert violations == []


def test_the_api_reference_has_no_serious_barrier_of_ours(window: Open, axe: str) -> None:
    root = window("root", bypass_csp=True).go("/api/v1/docs#/Account/whoami")
    operation = root.page.locator("#operations-Account-whoami")
    operation.get_by_role("button", name="Execute").wait_for(timeout=4 * PATIENCE_MS)
    assert barriers(root, axe) == []
