"""Notebook servers: time to a ready server, time to a usable JupyterLab, and memory.

    python bench/notebooks.py [--rounds N] [--servers N] [--no-peer] [--no-browser] [--json]

Slipway runs completely: a launch through the REST API, the queue, the node, a server forked from a
warm process, and sign-in through the Hub. The peer is JupyterHub with its local spawner and the
same JupyterLab, in the same run. Both users are signed in beforehand. Rounds are interleaved, and
figures are medians. `click_to_usable_lab` lasts until the launcher can be clicked in Chromium, with
an empty cache. `memory_per_idle_server` is the memory of `--servers` idle servers per server. Pages
that several processes share count once. For Slipway it includes supervisors and the warm process.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, refuse, require, require_folder  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "jupyterhub", "playwright"])

import httpx  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from portal.config.notebooks import node_program  # noqa: E402
from tests.chromium import EXECUTABLE, FLAGS  # noqa: E402
from tests.notebooks import PASSWORD, SERVERS, Person, running_notebooks  # noqa: E402
from tests.portals import RunningPortal  # noqa: E402
from tests.processes import command_of, free_ports, wait_for  # noqa: E402
from workers.launcher.launch import StateFolder  # noqa: E402
from workers.launcher.processes import descendants  # noqa: E402

_TIMEOUT_S = 180.0
_PROXY = ROOT / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
_PLAIN = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [{node!r}, {chp!r}]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r}
c.Spawner.args = ["--allow-root"]
c.Spawner.default_url = "/lab"
c.JupyterHub.services = [{{"name": "bench", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers"]}}
]
"""
_TOKEN = "a-token-of-the-bench-alone"


@dataclass(frozen=True)
class BenchServer:
    """Operations on one side of the comparison: start a server (returns its URL), and stop it.

    `idle` is a context manager that starts servers, yields their processes, and stops them.
    """

    start: Callable[[], str]
    stop: Callable[[], None]
    cookies: Callable[[], list[dict[str, Any]]]
    idle: Callable[[int], AbstractContextManager[list[int]]]


@contextmanager
def run_slipway(folder: Path) -> Iterator[BenchServer]:
    """Start the platform, sign in, and wait until a process is warm."""
    with running_notebooks(folder) as running:
        running.program.wait_for_text("jupyterlab process is warm", within_s=180)
        person = Person(running, "bob", PASSWORD)
        servers: list[str] = []

        def start() -> str:
            server = person.ready(f"bench-{len(servers)}")
            servers.append(server)
            return str(person.look(server)["url"])

        def stop() -> None:
            person.api.post(f"{SERVERS}/{servers[-1]}/stop").raise_for_status()
            person.wait_for(servers[-1], "stopped")

        yield BenchServer(
            start,
            stop,
            lambda: _cookies(person.browser),
            lambda count: _idle_slipway_servers(running, person, count),
        )


@contextmanager
def _idle_slipway_servers(
    running: RunningPortal, person: Person, count: int
) -> Iterator[list[int]]:
    servers = [person.ready(f"idle-{number}", tier="desk") for number in range(count)]
    try:
        yield _slipway_processes(running, count)
    finally:
        for server in servers:
            person.stop(server)


def _slipway_processes(running: RunningPortal, count: int) -> list[int]:
    """Return the processes of servers, their supervisors, and the warm process they forked from."""
    tasks = (running.installation.data_dir / "node" / "tasks").glob("*/state")
    shims = [
        shim.pid
        for folder in tasks
        if (shim := StateFolder(folder).shim()) is not None and shim.is_alive()
    ]
    assert len(shims) == count, f"{len(shims)} tasks run for {count} servers"
    below = {pid for shim in shims for pid in descendants(shim)}
    commands = {command_of(pid) for pid in below}
    warm = {pid for pid in descendants(running.program.pid) if command_of(pid) in commands}
    return sorted({*shims, *below, *warm})


@contextmanager
def run_jupyterhub(folder: Path) -> Iterator[BenchServer]:
    """Start a JupyterHub as its own documentation does, with a signed-in user."""
    port, hub, proxy = free_ports(3)
    settings = _PLAIN.format(
        port=port,
        hub=hub,
        proxy=proxy,
        node=node_program(),
        chp=str(_PROXY),
        home=str(folder / "{username}"),
        token=_TOKEN,
    )
    (folder / "jupyterhub_config.py").write_text(settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
        cwd=folder,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=(folder / "hub.log").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(
            lambda: _is_reachable(f"{url}/hub/health"), "a plain JupyterHub", within_s=_TIMEOUT_S
        )
        browser = httpx.Client(follow_redirects=True, timeout=60)
        page = browser.get(f"{url}/hub/login")
        xsrf = str(browser.cookies.get("_xsrf"))
        form = {"username": "bob", "password": "x", "_xsrf": xsrf}
        browser.post(f"{url}/hub/login?next=/hub/token", data=form).raise_for_status()
        assert page.is_success, page.text
        api = httpx.Client(base_url=f"{url}/hub/api", headers={"Authorization": f"token {_TOKEN}"})
        yield BenchServer(
            lambda: _start_server(api, url),
            lambda: _stop_server(api),
            lambda: _cookies(browser),
            lambda count: _idle_plain_servers(api, process.pid, count),
        )
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@contextmanager
def _idle_plain_servers(api: httpx.Client, hub: int, count: int) -> Iterator[list[int]]:
    names = [f"idle-{number}" for number in range(count)]
    try:
        for name in names:
            api.post(f"/users/{name}").raise_for_status()
            _start_server(api, "", name)
        labs = [pid for pid in descendants(hub) if "singleuser" in command_of(pid)]
        assert len(labs) == count, f"{len(labs)} processes of {count} servers"
        yield labs
    finally:
        for name in names:
            _stop_server(api, name)


def _start_server(api: httpx.Client, url: str, name: str = "bob") -> str:
    api.post(f"/users/{name}/server", timeout=_TIMEOUT_S).raise_for_status()
    wait_for(lambda: _server(api, name).get("ready"), "a ready server", within_s=_TIMEOUT_S)
    return f"{url}/user/{name}/lab"


def _stop_server(api: httpx.Client, name: str = "bob") -> None:
    api.delete(f"/users/{name}/server", timeout=_TIMEOUT_S)
    wait_for(lambda: not _server(api, name), "the end of a server", within_s=_TIMEOUT_S)


def _server(api: httpx.Client, name: str) -> dict[str, Any]:
    server: dict[str, Any] = api.get(f"/users/{name}").json().get("servers", {}).get("", {})
    return server


def memory_mib(pids: list[int]) -> float:
    """Return the total memory of processes. Shared pages count once."""
    lines = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    shares = [line.split()[1] for rollup in lines for line in rollup if line.startswith("Pss:")]
    return sum(int(share) for share in shares) / 1024


def _is_reachable(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.TransportError:
        return False


def _cookies(client: httpx.Client) -> list[dict[str, Any]]:
    return [
        {
            "name": cookie.name,
            "value": str(cookie.value),
            "domain": cookie.domain.removesuffix(".local"),
            "path": cookie.path,
        }
        for cookie in client.cookies.jar
    ]


def measure_round(side: BenchServer, browser: Browser | None) -> tuple[float, float]:
    """Return the seconds to a ready server, and to a clickable launcher (0 without a browser)."""
    if browser is None:
        started = time.perf_counter()
        side.start()
        ready_s = time.perf_counter() - started
        side.stop()
        return ready_s, 0.0
    context = browser.new_context()
    context.add_cookies(side.cookies())  # type: ignore[arg-type]
    page = context.new_page()
    started = time.perf_counter()
    url = side.start()
    ready_s = time.perf_counter() - started
    page.goto(url)
    page.locator(".jp-LauncherCard").first.wait_for(timeout=_TIMEOUT_S * 1000)
    usable_s = time.perf_counter() - started
    context.close()
    side.stop()
    return ready_s, usable_s


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements and return the cases."""
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": []}
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        sides = {"ours": stack.enter_context(run_slipway(folders[0]))}
        if not options.no_peer:
            sides["plain"] = stack.enter_context(run_jupyterhub(folders[1]))
        browser = None
        if not options.no_browser:
            playwright = stack.enter_context(sync_playwright())
            browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        for number in range(options.rounds):
            for name, side in sides.items():
                times[name].append(measure_round(side, browser))
            latest = ", ".join(f"{name} {times[name][-1][0]:.2f} s" for name in sides)
            print(f"round {number + 1}: ready after {latest}", flush=True)
        if browser is not None:
            browser.close()
        memory = {name: _memory_of(side, options.servers) for name, side in sides.items()}
    times = {name: times[name] for name in sides}
    cases = {"click_to_server_ready": _case(_medians(times, 0), "s")}
    if not options.no_browser:
        cases["click_to_usable_lab"] = _case(_medians(times, 1), "s")
    return cases | {"memory_per_idle_server": _case(memory, "MiB")}


def _memory_of(side: BenchServer, servers: int) -> float:
    with side.idle(servers) as processes:
        return memory_mib(processes) / servers


def _medians(times: dict[str, list[tuple[float, float]]], index: int) -> dict[str, float]:
    return {
        name: statistics.median(pair[index] for pair in results) for name, results in times.items()
    }


def _case(figures: dict[str, float], unit: str) -> dict[str, Any]:
    ours, peer = figures["ours"], figures.get("plain")
    return {
        "ours": round(ours, 3),
        "peer": None if peer is None else round(peer, 3),
        "ratio": None if peer is None else round(ours / peer, 4),
        "unit": unit,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--servers", type=int, default=4, help="number of idle servers to measure memory"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-peer", action="store_true", help="leave JupyterHub out")
    parser.add_argument("--no-browser", action="store_true", help="leave Chromium out")
    options = parser.parse_args()
    require_folder(_PROXY.parents[2], "make setup")
    if not options.no_browser and not Path(EXECUTABLE).exists():
        refuse("needs Chromium: run `make setup-integration`, or leave it out with --no-browser.")
    cases = measure(options)
    for name, figures in cases.items():
        sides = f"{figures['ours']} / {figures['peer']} {figures['unit']}"
        print(f"{name:24} {sides} = {figures['ratio']}")
    if options.json:
        print(json.dumps({"bench": "notebooks", "cases": cases}))


if __name__ == "__main__":
    main()
