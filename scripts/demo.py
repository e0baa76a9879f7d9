"""`make demo`: start Slipway and drive what it is for once, on real data, printing every address.

    .venv/bin/python scripts/demo.py [--exit]
    DEMO_ADMINISTRATOR=me@example.org:PASSWORD .venv/bin/python scripts/demo.py --url URL

Leaves the platform running (Ctrl-C stops it); with `--exit` it is stopped at the end. One that runs
already is driven where it is; with `--url` one that runs elsewhere. Every step goes through a door
that any person or program could take, and finds again what an earlier demo has made. The status is
0 only if each of them succeeded.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from portal.config.env import env  # noqa: E402  (the path comes first)
from scripts.loop import (  # noqa: E402
    alarming,
    data,
    desk,
    hardware,
    learning,
    paying,
    promoting,
    serving,
)
from scripts.loop.people import DemoUser, Passwords, UserSetup  # noqa: E402
from scripts.loop.running import Platform  # noqa: E402
from scripts.loop.telling import DemoError, StepReporter  # noqa: E402
from slipway.errors import SlipwayError  # noqa: E402
from slipway.schemas.training import JobOut  # noqa: E402


def drive(tell: StepReporter, ada: DemoUser, grace: DemoUser, folder: Path) -> None:
    """Do every step; raises DemoError or SlipwayError at the first that fails."""
    client = ada.client
    with tell.step("Create a project with a budget, and check the hardware"):
        data.create_project(client)
        tell.pay_from(client, data.PROJECT)
        paying.set_budget(client)
        hardware.show_hardware(client)
    with tell.step("Upload the digits as a dataset version"):
        digits = data.Digits(folder)
        version, rows = data.push(client, digits), digits.rows
    with tell.step("Launch a notebook from the portal, run it on the same data, and stop it"):
        desk.work_in_notebook(ada)
    jobs: list[JobOut] = []
    for wanted in (learning.SHORT, learning.LONG):
        again = " (the first time, the node installs torch and MLflow)" if not jobs else ""
        with tell.step(f"Train on two ranks: {wanted.name}{again}"):
            jobs.append(learning.run_job(client, wanted, version))
            learning.check(client, jobs[-1])
    with tell.step("Compare the two runs"):
        learning.compare_runs(client, jobs, version)
    with tell.step("Register both models, with gates for the stage Production"):
        first, second = (promoting.version_of(client, job) for job in jobs)
        promoting.declare_gates(client, version)
    with tell.step("Promote the first model, approved by a colleague"):
        promoting.promote(ada, grace, first)
    with tell.step("Deploy it: the endpoint serves once its golden predictions match"):
        serving.create(client, first)
    with tell.step("Promote the second model, which is better than the first"):
        promoting.promote(ada, grace, second)
    with tell.step("Roll it out as a canary under traffic"):
        endpoint = serving.promote_by_canary(client, second, rows)
    with tell.step("Predict through the gateway"):
        serving.predict(client, endpoint, rows)
    with tell.step("Send drifted digits: alerts, and measured quality from labels"):
        alarming.shift_traffic(client, endpoint, rows)
    with tell.step("Show what all of this cost"):
        paying.show_spend(client)


def run(platform: Platform, tell: StepReporter) -> None:
    """Wait for the platform, let two people in, and do every step."""
    with tell.step("Start Slipway"):
        platform.wait_until_ready()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-demo-"))
        door = UserSetup(platform, Passwords(env().data_dir / "demo.json"))
        with tell.step("Sign in as two people"):
            ada = stack.enter_context(door.let_in("Ada", "trains, and registers what she trained"))
            grace = stack.enter_context(door.let_in("Grace", "approves"))
        drive(tell, ada, grace, Path(folder))


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description="Start Slipway and drive it once, on real data.")
    parser.add_argument("--exit", action="store_true", help="stop the platform at the end")
    parser.add_argument("--url", help="use the Slipway at this address (needs DEMO_ADMINISTRATOR)")
    arguments = parser.parse_args()
    if arguments.url:
        email, _, password = os.environ.get("DEMO_ADMINISTRATOR", "").partition(":")
        if not password:
            parser.error("--url needs DEMO_ADMINISTRATOR=EMAIL:PASSWORD, to invite two people")
        platform = Platform(arguments.url.rstrip("/"), administrator=(email, password))
    else:
        platform = Platform(env().url)
    tell = StepReporter()
    try:
        run(platform, tell)
    except (DemoError, SlipwayError, httpx.HTTPError) as error:
        print(f"\nslipway: the demo failed: {error}", file=sys.stderr, flush=True)
        platform.stop()
        return 1
    except KeyboardInterrupt:
        platform.stop()
        return 130
    tell.sum_up()
    print(f"\nAll steps succeeded. Look around: {platform.url}/p/{data.PROJECT}", flush=True)
    return platform.stop() if arguments.exit else platform.stay()


if __name__ == "__main__":
    sys.exit(main())
