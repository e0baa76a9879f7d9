"""What people do in the portal, in a real browser."""

import re
import secrets
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import NARROW, PATIENCE_MS, Open
from tests.personas import PASSWORD
from tests.portals import RunningPortal

pytestmark = pytest.mark.browser
# The portal cuts within 5 s (tests/portal/web/test_streams.py); the browser then loads a page.
CUT_MS = 10_000


def test_signing_in_leads_back_to_the_page_one_wanted(window: Open, project: str) -> None:
    visitor = window().go(f"/p/{project}/members")
    visitor.sign_in("alice", "wrong password")
    expect(visitor.page.get_by_role("alert")).to_contain_text("not correct")
    expect(visitor.page.get_by_label("Email")).to_have_value("alice@example.org")
    visitor.sign_in("alice")
    visitor.is_at(f"/p/{project}/members")


def test_a_newcomer_creates_a_first_project(window: Open) -> None:
    alice = window("alice").go("/")
    name = f"Churn {secrets.token_hex(4)}"
    alice.page.get_by_role("link", name="New project").first.click()
    alice.page.get_by_label("Name").fill(name)
    alice.page.get_by_role("textbox", name="Description").fill("Who leaves, and why?")
    alice.page.get_by_role("button", name="Create project").click()
    alice.toast("is ready")
    expect(alice.page.get_by_role("heading", level=1)).to_have_text(name)
    alice.says("Who leaves, and why?")
    alice.page.get_by_role("button", name="Switch project").click()
    expect(alice.page.locator(".switcher .dropdown-menu")).to_contain_text(name)


def test_a_form_that_is_refused_keeps_what_was_typed(window: Open, project: str) -> None:
    alice = window("alice").go("/projects/new")
    alice.page.get_by_label("Name").fill("Kept name")
    alice.page.get_by_label("Address").fill(project)
    alice.page.get_by_role("button", name="Create project").click()
    expect(alice.page.locator("#id_slug_error")).to_contain_text("already use the address")
    expect(alice.page.get_by_label("Name")).to_have_value("Kept name")
    expect(alice.page.get_by_label("Address")).to_have_attribute("aria-invalid", "true")


def test_an_invited_colleague_joins_by_the_link_and_is_seen_live(
    window: Open, project: str
) -> None:
    alice = window("alice").go(f"/p/{project}/members")
    address = f"ada-{secrets.token_hex(4)}@example.org"
    alice.page.get_by_label("E-mail address").first.fill(address)
    alice.page.get_by_role("button", name="Invite").click()
    link = alice.page.locator("#invitation-link").inner_text()
    expect(alice.page.locator("#invitations-rows")).to_contain_text(address)
    colleague = window()
    colleague.page.goto(link)
    colleague.says("invites you to")
    colleague.page.get_by_role("link", name="Join as").click()
    expect(colleague.page.get_by_label("Email")).to_have_value(address)
    colleague.page.get_by_label("Your name").fill("Ada Lovelace")
    colleague.page.get_by_label("Password").fill("a-quiet-river-bend")
    colleague.page.get_by_role("button", name="Show").click()
    expect(colleague.page.get_by_label("Password")).to_have_attribute("type", "text")
    colleague.page.get_by_role("button", name="Join", exact=True).click()
    colleague.is_at(f"/p/{project}")
    expect(alice.page.locator("#members-rows")).to_contain_text("Ada Lovelace")
    expect(alice.page.locator("#invitations-rows")).not_to_contain_text(address)


def test_somebody_with_an_account_signs_in_and_accepts(
    window: Open, portal: RunningPortal, project: str
) -> None:
    with portal.client("alice") as alice:
        invite = {"email": "charlie@example.org", "role": "viewer"}
        link = alice.post(f"/projects/{project}/invitations", json=invite).json()["link"]
    wrong = window("bob")
    wrong.page.goto(link)
    wrong.says("You are signed in as")
    visitor = window()
    visitor.page.goto(link)
    visitor.page.get_by_role("link", name="I have an account").click()
    visitor.sign_in("charlie")
    visitor.page.get_by_role("button", name="Accept and go to").click()
    visitor.is_at(f"/p/{project}")
    visitor.toast("Welcome to")


def test_a_token_is_made_copied_used_and_revoked(window: Open, portal: RunningPortal) -> None:
    alice = window("alice", permissions=["clipboard-read", "clipboard-write"])
    name = f"laptop {secrets.token_hex(4)}"
    alice.go(f"/settings/tokens/new?name={name.replace(' ', '%20')}&scopes=projects:read")
    expect(alice.page.get_by_label("Name")).to_have_value(name)
    alice.page.get_by_role("button", name="Create token").click()
    alice.page.get_by_role("button", name="Copy: the token").click()
    expect(alice.page.get_by_role("button", name="Copy: the token")).to_contain_text("Copied")
    token = alice.page.evaluate("navigator.clipboard.readText()")
    headers = {"Authorization": f"Bearer {token}"}
    whoami = f"{portal.url}/api/v1/whoami"
    assert httpx.get(whoami, headers=headers).json()["user"]["email"] == "alice@example.org"
    alice.page.get_by_role("link", name="Done").click()
    expect(alice.page.locator("body")).not_to_contain_text(token)
    alice.page.get_by_role("link", name=f"Revoke {name}").click()
    dialog = alice.page.get_by_role("dialog")
    expect(dialog).to_contain_text("are refused from their next request on")
    dialog.get_by_role("button", name="Revoke the token").click()
    alice.toast("no longer works")
    assert httpx.get(whoami, headers=headers).status_code == 401


def test_a_list_is_narrowed_down_while_one_types(window: Open, project: str) -> None:
    alice = window("alice").go(f"/p/{project}/members")
    expect(alice.page.locator("#members-rows tbody tr")).to_have_count(2)
    alice.page.get_by_label("Name or e-mail address").fill("bob")
    expect(alice.page.locator("#members-rows tbody tr")).to_have_count(1)
    assert alice.page.url.endswith("?q=bob&role=")
    alice.page.reload()
    expect(alice.page.locator("#members-rows tbody tr")).to_have_count(1)


def test_a_role_is_changed_and_shown_live_in_another_window(window: Open, project: str) -> None:
    bob = window("bob").go(f"/p/{project}/members")
    alice = window("alice").go(f"/p/{project}/members")
    alice.page.get_by_label("Role of Bob").select_option("maintainer")
    alice.toast("Bob is now maintainer")
    row = bob.page.locator("#members-rows tr", has_text="bob@example.org")
    expect(row).to_contain_text("maintainer", timeout=PATIENCE_MS)


def test_a_removed_member_is_cut_off_in_front_of_the_open_page(window: Open, project: str) -> None:
    bob = window("bob").go(f"/p/{project}/members")
    expect(bob.page.get_by_role("heading", level=1)).to_have_text("Members")
    alice = window("alice").go(f"/p/{project}/members")
    alice.page.get_by_role("link", name="Remove Bob").click()
    dialog = alice.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Remove Bob from")
    dialog.get_by_role("button", name="Remove Bob").click()
    expect(bob.page.get_by_role("heading", level=1)).to_have_text("Not found", timeout=CUT_MS)


def test_a_question_is_dismissed_by_escape_and_by_its_button(window: Open, project: str) -> None:
    alice = window("alice").go(f"/p/{project}/members")
    dialog = alice.page.get_by_role("dialog")
    for dismiss in ("Escape", "button"):
        alice.page.get_by_role("link", name="Remove Bob").click()
        expect(dialog).to_be_visible()
        if dismiss == "Escape":
            alice.page.keyboard.press("Escape")
        else:
            dialog.get_by_role("link", name="Cancel").click()
        expect(dialog).not_to_be_visible()
    expect(alice.page.locator("#members-rows")).to_contain_text("bob@example.org")


def test_signing_out_everywhere_reaches_the_other_browser(window: Open) -> None:
    here, there = window().go("/account/login"), window().go("/account/login")
    for visitor in (here, there):
        visitor.sign_in("charlie")
        visitor.is_at("/")
    here.go("/settings/sessions")
    here.page.get_by_role("button", name="Sign out everywhere else").click()
    here.toast("Signed out of")
    expect(there.page.get_by_role("heading", level=1)).to_have_text("Sign in", timeout=CUT_MS)


def test_a_forgotten_password_is_reset_through_the_outbox(
    window: Open, portal: RunningPortal, mail: Callable[[str], str]
) -> None:
    name = f"eve-{secrets.token_hex(4)}"
    made = portal.installation.manage(
        "shell", "-c", f"from tests.personas import make_user; make_user({name!r})"
    )
    assert made.returncode == 0, made.stderr
    visitor = window().go("/account/login")
    visitor.page.get_by_role("link", name="Forgot your password?").click()
    visitor.page.get_by_label("Email").fill(f"{name}@example.org")
    visitor.page.get_by_role("button", name="Send link").click()
    visitor.says("Ask an administrator")
    link = re.search(r"http\S+/password/reset/key/\S+", mail(f"{name}@example.org"))
    assert link is not None
    visitor.page.goto(link.group())
    visitor.page.get_by_label("New password").fill("short")
    visitor.page.get_by_role("button", name="Save password").click()
    expect(visitor.page.locator("#id_password1_error")).to_contain_text("too short")
    visitor.page.get_by_label("New password").fill("a-quiet-river-bend")
    visitor.page.get_by_role("button", name="Save password").click()
    visitor.page.get_by_role("link", name="Sign in").click()
    visitor.sign_in(name, "a-quiet-river-bend").is_at("/")
    visitor.says("Hello, ")
    assert PASSWORD not in visitor.page.content()


def test_the_theme_is_the_systems_until_one_chooses_and_then_remembered(window: Open) -> None:
    alice = window("alice", color_scheme="dark").go("/")
    html = alice.page.locator("html")
    expect(html).to_have_attribute("data-bs-theme", "dark")
    alice.page.get_by_role("button", name="Your account").click()
    alice.page.get_by_role("button", name="Light").click()
    expect(html).to_have_attribute("data-bs-theme", "light")
    alice.go("/projects")
    expect(html).to_have_attribute("data-bs-theme", "light")
    alice.page.get_by_role("button", name="Your account").click()
    expect(alice.page.get_by_role("button", name="Light")).to_have_attribute("aria-pressed", "true")
    alice.page.get_by_role("button", name="System").click()
    expect(html).to_have_attribute("data-bs-theme", "dark")


def test_a_dark_page_is_never_painted_light_first(window: Open) -> None:
    alice = window("alice", color_scheme="dark")
    alice.page.add_init_script(
        "new MutationObserver(() => { if (document.body) window.themeAtBody ??= "
        "document.documentElement.dataset.bsTheme }).observe(document, "
        "{childList: true, subtree: true})"
    )
    alice.go("/")
    assert alice.page.evaluate("window.themeAtBody") == "dark"


def test_at_390_px_the_rail_waits_behind_a_button_and_nothing_overflows(
    window: Open, project: str
) -> None:
    alice = window("alice", viewport=NARROW, has_touch=True)
    for path in ("/api/v1/docs", "/", "/projects", f"/p/{project}/members", "/settings/tokens/new"):
        alice.go(path)
        too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not alice.page.evaluate(too_wide), path
    expect(alice.page.locator("#rail")).not_to_be_visible()
    alice.page.get_by_role("button", name="Open the menu").click()
    expect(alice.page.locator("#rail")).to_be_visible()
    alice.page.locator("#rail").get_by_role("link", name="Projects").click()
    alice.is_at("/projects")


def test_groups_of_the_navigation_open_by_keyboard_and_stay_open(
    window: Open, project: str
) -> None:
    page = window("alice").go(f"/p/{project}").page
    jobs = page.get_by_role("link", name="Jobs", exact=True)
    manage = page.locator("summary", has_text="Manage")
    expect(jobs).to_be_hidden()
    page.locator("summary", has_text="Develop").focus()
    page.keyboard.press("Enter")
    expect(jobs).to_be_visible()
    jobs.click()
    page.wait_for_url(f"**/p/{project}/jobs")
    page.get_by_role("link", name="Datasets").click()
    expect(jobs).to_be_visible()
    manage.click()
    page.get_by_role("link", name="Members", exact=True).click()
    manage.click()
    page.get_by_role("link", name="Overview").click()
    expect(manage).to_be_visible()
    expect(page.get_by_role("link", name="Secrets")).to_be_hidden()


def test_groups_of_the_navigation_open_without_scripts_and_in_the_drawer(
    window: Open, project: str
) -> None:
    plain = window("alice", java_script_enabled=False).go(f"/p/{project}").page
    plain.locator("summary", has_text="Develop").click()
    expect(plain.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
    narrow = window("alice", viewport=NARROW).go(f"/p/{project}").page
    narrow.get_by_role("button", name="Open the menu").click()
    narrow.locator("summary", has_text="Manage").click()
    menu = narrow.get_by_role("navigation", name="Main")
    menu.get_by_role("link", name="Members", exact=True).click()
    narrow.wait_for_url(f"**/p/{project}/members")


def test_a_form_that_comes_back_leads_to_the_first_fault(window: Open) -> None:
    alice = window("alice").go("/settings/tokens/new")
    alice.page.evaluate("for (const form of document.forms) form.noValidate = true")
    alice.page.get_by_role("button", name="Create token").click()
    name = alice.page.locator("input[name=name][aria-invalid=true]")
    expect(name).to_be_focused()
    expect(name).to_be_in_viewport()


def test_everything_is_within_reach_of_the_keyboard(window: Open, project: str) -> None:
    alice = window("alice").go(f"/p/{project}")
    press = alice.page.keyboard.press
    press("Tab")
    expect(alice.page.get_by_role("link", name="Skip to content")).to_be_focused()
    press("Enter")
    expect(alice.page.locator("#content")).to_be_focused()
    press("Control+k")
    field = alice.page.get_by_role("combobox")
    expect(field).to_be_focused()
    first = alice.page.get_by_role("option").first
    expect(first).to_have_attribute("aria-selected", "true")
    alice.page.keyboard.type("new token")
    expect(first).to_contain_text("New API token")
    press("ArrowDown")
    press("ArrowUp")
    expect(field).to_have_attribute("aria-activedescendant", "palette-0")
    press("Enter")
    alice.is_at("/settings/tokens/new")
    alice.page.get_by_label("Name").focus()
    alice.page.keyboard.type("by keyboard")
    for _ in range(20):
        press("Tab")
        if alice.page.evaluate("document.activeElement.textContent.trim()") == "Create token":
            break
    press("Enter")
    alice.says("Copy it now")


def test_the_palette_closes_by_escape_and_opens_by_its_button(window: Open, project: str) -> None:
    alice = window("alice").go("/")
    alice.page.get_by_role("button", name="Search or jump to").click()
    palette = alice.page.locator("#palette")
    expect(palette).to_be_visible()
    alice.page.keyboard.type(project)
    expect(alice.page.get_by_role("option").first).to_contain_text("Vision")
    alice.page.keyboard.press("Escape")
    expect(palette).not_to_be_visible()


def test_every_form_works_without_scripts(window: Open, project: str) -> None:
    alice = window("alice", java_script_enabled=False).go(f"/p/{project}/members")
    row = alice.page.locator("#members-rows tr", has_text="bob@example.org")
    row.get_by_role("combobox").select_option("viewer")
    row.get_by_role("button", name="Set").click()
    alice.says("Bob is now viewer")
    alice.page.get_by_role("link", name="Remove Bob").click()
    alice.says("Remove Bob from")
    alice.page.get_by_role("button", name="Remove Bob").click()
    alice.says("is no longer in")


@pytest.mark.thorough
def test_the_api_reference_works_under_the_policy_of_the_pages(window: Open) -> None:
    alice = window("alice").go("/api/v1/docs#/Account/whoami")
    expect(alice.page.get_by_role("button", name="Execute")).to_be_visible()
    alice.page.get_by_role("button", name="Execute").click()
    expect(alice.page.locator(".responses-table.live-responses-table")).to_contain_text(
        "alice@example.org"
    )
