"""`make demo`: start Slipway and run the whole loop once, on real data, printing every URL.

    .venv/bin/python scripts/demo.py [--exit] [--pool slurm]
    DEMO_ADMINISTRATOR=me@example.org:PASSWORD .venv/bin/python scripts/demo.py --url URL

Leaves the platform running until Ctrl-C, or stops it at the end with `--exit`. A platform that is
already running here is reused, and `--url` uses one that runs elsewhere. With `--pool` the models
are trained in a pool of another scheduler, which an administrator adds. All other steps use only
pages and APIs that are open to any user, and reuse what an earlier demo has created. The exit
status is 0 only if every step succeeded.
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
    alerts,
    data,
    hardware,
    notebook,
    pipeline,
    pools,
    promotion,
    serving,
    spend,
    sweep,
    training_run,
)
from scripts.loop.processes import Platform  # noqa: E402
from scripts.loop.steps import DemoError, StepReporter  # noqa: E402
from scripts.loop.users import DemoUser, Passwords, UserSetup  # noqa: E402
from slipway.errors import SlipwayError  # noqa: E402
from slipway.schemas.training import JobOut  # noqa: E402


def drive(
    reporter: StepReporter, ada: DemoUser, grace: DemoUser, folder: Path, pool: str | None
) -> None:
    """Run every step. Raises DemoError or SlipwayError at the first that fails."""
    client = ada.client
    with reporter.step("Create a project with a budget, and check the hardware"):
        data.create_project(client)
        reporter.track_cost(client, data.PROJECT)
        spend.set_budget(client)
        hardware.show_hardware(client)
    with reporter.step("Upload the digits as a dataset version"):
        digits = data.Digits(folder)
        version, rows = data.push(client, digits), digits.rows
    with reporter.step("Launch a notebook from the portal, run it on the same data, and stop it"):
        notebook.work_in_notebook(ada)
    jobs: list[JobOut] = []
    for training in (training_run.SHORT, training_run.LONG):
        note = " (the first time, the node installs torch and MLflow)" if not jobs else ""
        with reporter.step(f"Train on two ranks: {training.name}{note}"):
            jobs.append(training_run.run_job(client, training, version, pool))
            training_run.check(client, jobs[-1])
    with reporter.step("Search parameters: six runs with curves, images and a table"):
        search = training_run.run_job(client, training_run.SEARCH, version)
        training_run.show_search(client, search)
    with reporter.step("Search further with a sweep of eight trials, the worse ones stopped early"):
        sweep.run_sweep(client, version)
    with reporter.step("Run a pipeline of three steps, and again: nothing runs twice"):
        pipeline.run_twice(client)
    with reporter.step("Compare the two runs"):
        training_run.compare_runs(client, jobs, version)
    with reporter.step("Register both models, with gates for the stage Production"):
        first, second = (promotion.version_of(client, job) for job in jobs)
        promotion.declare_gates(client, version)
    with reporter.step("Promote the first model, approved by a colleague"):
        promotion.promote(ada, grace, first)
    with reporter.step("Deploy it: the endpoint serves once its golden predictions match"):
        serving.create(client, first)
    with reporter.step("Promote the second model, which is better than the first"):
        promotion.promote(ada, grace, second)
    with reporter.step("Roll it out as a canary under traffic"):
        endpoint = serving.promote_by_canary(client, second, rows)
    with reporter.step("Predict through the gateway"):
        serving.predict(client, endpoint, rows)
    with reporter.step("Send drifted digits: alerts, and measured quality from labels"):
        alerts.shift_traffic(client, endpoint, rows)
    with reporter.step("Show what all of this cost"):
        spend.show_spend(client)


def run(platform: Platform, reporter: StepReporter, engine: str | None) -> None:
    """Wait for the platform, sign two users in, and run every step."""
    with reporter.step("Start Slipway"):
        platform.wait_until_ready()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-demo-"))
        users = UserSetup(platform, Passwords(env().data_dir / "demo.json"))
        with reporter.step("Sign in as two users"):
            ada = stack.enter_context(users.sign_in("Ada", "trains and registers models"))
            grace = stack.enter_context(users.sign_in("Grace", "approves promotions"))
        if engine is not None:
            with reporter.step(f"Add a pool of the engine {engine}"):
                users.create_pool(engine)
        pool = pools.name_of(engine) if engine else None
        drive(reporter, ada, grace, Path(folder), pool)


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(
        description="Start Slipway and run the whole loop once, on real data."
    )
    parser.add_argument("--exit", action="store_true", help="stop the platform at the end")
    parser.add_argument(
        "--pool", choices=pools.ENGINES, help="train the models in a pool of this engine"
    )
    parser.add_argument("--url", help="use the Slipway at this address (needs DEMO_ADMINISTRATOR)")
    arguments = parser.parse_args()
    if arguments.url:
        email, _, password = os.environ.get("DEMO_ADMINISTRATOR", "").partition(":")
        if not password:
            parser.error("--url needs DEMO_ADMINISTRATOR=EMAIL:PASSWORD to invite two users")
        platform = Platform(arguments.url.rstrip("/"), administrator=(email, password))
    else:
        platform = Platform(env().url)
    reporter = StepReporter()
    try:
        run(platform, reporter, arguments.pool)
    except (DemoError, SlipwayError, httpx.HTTPError) as error:
        print(f"\nslipway: the demo failed: {error}", file=sys.stderr, flush=True)
        platform.stop()
        return 1
    except KeyboardInterrupt:
        platform.stop()
        return 130
    reporter.print_summary()
    print(f"\nAll steps succeeded. Look around: {platform.url}/p/{data.PROJECT}", flush=True)
    return platform.stop() if arguments.exit else platform.stay()


if __name__ == "__main__":
    sys.exit(main())
