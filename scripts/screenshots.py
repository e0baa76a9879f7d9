"""Take screenshots of every page with a real Chromium, at 1280 and 390 px, in light and dark.

    make screenshots

Starts a temporary Slipway with sample users, projects and jobs. The screenshots go to
`.cache/screenshots`, to review changes of pages. `scripts/readme_pictures.py` takes those of the
README.
"""

import io
import signal
import sys
import tarfile
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.chromium import EXECUTABLE, FLAGS  # noqa: E402  (the path comes first)
from tests.integration.serving.living import Endpoints, Load  # noqa: E402  (the path comes first)
from tests.portals import RunningPortal, running_slipway  # noqa: E402
from tests.processes import wait_for  # noqa: E402

PASSWORD = "correct-horse-battery"  # noqa: S105  (of sample users in a temporary folder)
SETTLE_MS = 400  # until the page has loaded its data
SIZES = {"wide": (1280, 860), "phone": (390, 844)}
SMALL = {
    "name": "CPU tiny",
    "slug": "cpu-tiny",
    "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 20_000_000,
}
PAGES = {
    "home": "/",
    "projects": "/projects",
    "project-new": "/projects/new",
    "project": "/p/churn-model",
    "jobs": "/p/churn-model/jobs",
    "job": "/p/churn-model/jobs/{job}",
    "job-diff": "/p/churn-model/jobs/{job}/diff",
    "job-new": "/p/churn-model/jobs/new",
    "job-clone": "/p/churn-model/jobs/new?from={job}",
    "models": "/p/vision/models",
    "model-version": "/p/vision/models/double/versions/1",
    "model-rules": "/p/vision/registry-rules",
    "endpoints": "/p/vision/endpoints",
    "endpoint": "/p/vision/endpoints/doubling",
    "endpoint-new": "/p/vision/new-endpoint?model=double",
    "endpoint-promote": "/p/vision/endpoints/doubling/promote",
    "endpoint-change": "/p/vision/endpoints/doubling/change",
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
    "nodes": "/settings/nodes",
    "tiers": "/settings/tiers",
    "tier": "/settings/tiers/cpu-small",
    "tier-new": "/settings/tiers/new",
    "quotas": "/settings/quotas",
}


def fill(portal: RunningPortal) -> None:
    """Create the sample data through the REST API, as root and alice."""
    with portal.client("root") as root, portal.client("alice") as alice:
        root.post("/teams", json={"name": "Research"}).raise_for_status()
        for name, team in (
            ("Churn model", "research"),
            ("Demand forecast", None),
        ):
            body = {"name": name, "description": f"{name}: data, runs and endpoints.", "team": team}
            root.post("/projects", json=body).raise_for_status()
        for role, email in (("contributor", "alice"), ("viewer", "bob"), ("maintainer", "ada")):
            response = root.post(
                "/projects/churn-model/invitations",
                json={"email": f"{email}@example.org", "role": role},
            )
            response.raise_for_status()
            if email == "alice":
                token = str(response.json()["link"]).rpartition("/")[2]
                alice.post("/invitations/accept", json={"token": token}).raise_for_status()
        for secret in ("WAREHOUSE_PASSWORD", "S3_KEY"):
            root.put(f"/projects/churn-model/secrets/{secret}", json={"value": "x"})


SCRIPT = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
arguments = parser.parse_args()
for epoch in range(arguments.epochs):
    loss = 2 / (1 + arguments.lr * epoch * 10)
    print(f"epoch \\x1b[36m{epoch:3d}\\x1b[0m  loss \\x1b[32m{loss:.4f}\\x1b[0m", flush=True)
    time.sleep(0.4)
"""
GIT = {
    "commit": "3f2a9c17e0b54d6f8a1c2e3d4b5a69788c7d6e5f",
    "branch": "main",
    "is_dirty": True,
    "diff": "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import time\n-lr = 0.1\n+lr = 0.2\n",
}


def run_jobs(portal: RunningPortal) -> str:
    """Submit a job that ends, one that keeps running and two that wait. Return the running one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(SCRIPT.encode())
        archive.addfile(member, io.BytesIO(SCRIPT.encode()))
    with portal.client("root") as root:
        snapshot = root.post(
            "/projects/churn-model/snapshots",
            content=buffer.getvalue(),
            headers={"Content-Type": "application/octet-stream"},
        )

        def submit(name: str, tier: str, epochs: int) -> str:
            body = {"script": "train.py", "snapshot": snapshot.json()["digest"], "git": GIT}
            params = {"lr": "0.2", "epochs": str(epochs)}
            body |= {"name": name, "tier": tier, "params": params}
            response = root.post("/projects/churn-model/jobs", json=body)
            return str(response.raise_for_status().json()["workload"]["id"])

        def state_of(job: str) -> str:
            details = root.get(f"/projects/churn-model/jobs/{job}").json()
            return str(details["workload"]["state"])

        first = submit("baseline", "cpu-small", 2)
        wait_for(lambda: state_of(first) == "succeeded", "end of the first job", within_s=90)
        second = submit("higher rate", "cpu-small", 5000)
        wait_for(lambda: state_of(second) == "running", "start of the second job", within_s=90)
        for name in ("whole machine", "after that"):
            submit(name, "cpu-large", 10)
    return second


def serve(portal: RunningPortal) -> None:
    """Serve a model in the project Vision under traffic, and start a canary of another version."""
    vision = Endpoints(portal)
    with portal.client("root") as root:  # so that replicas leave a CPU for jobs
        root.post("/tiers", json=SMALL).raise_for_status()
    vision.create("doubling", vision.register(2, golden=2), tier="cpu-tiny")
    vision.until("doubling", 2, within_s=120)
    with Load(vision, "doubling", clients=1) as load:
        wait_for(lambda: load.statuses[200] > 2000, "responses", within_s=90)
        vision.promote("doubling", vision.register(3, golden=3), kind="canary", bake_s=3600)
        wait_for(lambda: 3.0 in load.factors, "a response of the canary", within_s=120)


def sign_in(page: Page, url: str) -> None:
    """Sign root in through the form."""
    page.goto(f"{url}/account/login")
    page.fill("input[name=login]", "root@example.org")
    page.fill("input[name=password]", PASSWORD)
    page.click("form button[type=submit]")
    page.wait_for_url(f"{url}/")


def take_screenshots(browser: Browser, url: str, folder: Path, job: str) -> int:
    """Take every screenshot and return their number."""
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
                page.goto(url + path.format(job=job))
                page.wait_for_timeout(SETTLE_MS)
                page.screenshot(path=folder / f"{name}-{size}-{theme}.png")
                taken += 1
            context.close()
    return taken


def main() -> None:
    """Start Slipway with sample data and take every screenshot."""
    folder = ROOT / ".cache" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        running_slipway(Path(data) / "data", SLIPWAY_EMBEDDED_GATEWAY="true") as portal,
        sync_playwright() as playwright,
    ):
        serve(portal)
        fill(portal)
        job = run_jobs(portal)
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        taken = take_screenshots(browser, portal.url, folder, job)
        browser.close()
        portal.program.signal(signal.SIGINT)
        portal.program.wait(120)
    sys.stdout.write(f"{taken} screenshots in {folder.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
