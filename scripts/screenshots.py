"""Take pictures of every page with a real Chromium, at 1280 and 390 px, in light and dark.

    make screenshots

Starts a portal of its own over sample people and projects. All pictures go to `.cache/screenshots`;
the few that the README shows are copied to `docs/screenshots`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.portals import RunningPortal, running_portal  # noqa: E402  (the path comes first)

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PASSWORD = "correct-horse-battery"  # noqa: S105  (of the sample people, in a folder that goes away)
SIZES = {"wide": (1280, 860), "phone": (390, 844)}
SHOWN = {
    "project-wide-light": "project",
    "home-wide-dark": "home-dark",
    "members-wide-light": "members",
}
PAGES = {
    "home": "/",
    "projects": "/projects",
    "project-new": "/projects/new",
    "project": "/p/churn-model",
    "members": "/p/churn-model/members",
    "secrets": "/p/churn-model/secrets",
    "audit": "/p/churn-model/audit",
    "project-settings": "/p/churn-model/settings",
    "teams": "/teams",
    "team": "/t/research",
    "profile": "/settings/profile",
    "sessions": "/settings/sessions",
    "tokens": "/settings/tokens",
    "token-new": "/settings/tokens/new",
    "people": "/settings/people",
    "all-audit": "/settings/audit",
}


def fill(portal: RunningPortal) -> None:
    """Make what the pictures show, through the REST API as root and alice."""
    with portal.client("root") as root, portal.client("alice") as alice:
        root.post("/teams", json={"name": "Research"}).raise_for_status()
        for name, team in (
            ("Churn model", "research"),
            ("Vision", None),
            ("Demand forecast", None),
        ):
            body = {"name": name, "description": f"{name}: data, runs and endpoints.", "team": team}
            root.post("/projects", json=body).raise_for_status()
        for role, email in (("contributor", "alice"), ("viewer", "bob"), ("maintainer", "ada")):
            answer = root.post(
                "/projects/churn-model/invitations",
                json={"email": f"{email}@example.org", "role": role},
            )
            answer.raise_for_status()
            if email == "alice":
                token = str(answer.json()["link"]).rpartition("/")[2]
                alice.post("/invitations/accept", json={"token": token}).raise_for_status()
        for secret in ("WAREHOUSE_PASSWORD", "S3_KEY"):
            root.put(f"/projects/churn-model/secrets/{secret}", json={"value": "x"})


def sign_in(page: Page, url: str) -> None:
    """Sign root in through the form."""
    page.goto(f"{url}/account/login")
    page.fill("input[name=login]", "root@example.org")
    page.fill("input[name=password]", PASSWORD)
    page.click("form button[type=submit]")
    page.wait_for_url(f"{url}/")


def take(browser: Browser, url: str, folder: Path) -> int:
    """Take every picture; returns how many."""
    taken = 0
    for size, (width, height) in SIZES.items():
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(f"{url}/account/login")
            page.screenshot(path=folder / f"sign-in-{size}-{theme}.png")
            sign_in(page, url)
            for name, path in PAGES.items():
                page.goto(url + path)
                page.screenshot(path=folder / f"{name}-{size}-{theme}.png")
                taken += 1
            context.close()
    return taken


def main() -> None:
    """Take the pictures and copy those that the documentation shows."""
    folder = ROOT / ".cache" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        running_portal(Path(data) / "data") as portal,
        sync_playwright() as playwright,
    ):
        fill(portal)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        taken = take(browser, portal.url, folder)
        browser.close()
    shown = ROOT / "docs" / "screenshots"
    shown.mkdir(exist_ok=True)
    for source, target in SHOWN.items():
        shutil.copyfile(folder / f"{source}.png", shown / f"{target}.png")
    sys.stdout.write(f"{taken} pictures in {folder.relative_to(ROOT)}, {len(SHOWN)} in docs\n")


if __name__ == "__main__":
    main()
