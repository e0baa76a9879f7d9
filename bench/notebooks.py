"""From the click to a notebook server that answers, and to a JupyterLab that can be used.

    python bench/notebooks.py [--rounds N] [--json]

Ours is the whole platform: a launch through the REST API, the queue, the node, a server forked from
a warm process, the Hub's door. The peer is JupyterHub with its own local spawner and the same
JupyterLab, in the same run, its user signed in beforehand as ours is. Rounds are interleaved;
figures are medians. `click_to_usable_lab` is until the launcher can be clicked in Chromium, with
an empty cache.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from portal.config.notebooks import node_program  # noqa: E402  (the path comes first)
from tests.notebooks import PASSWORD, SERVERS, Person, running_notebooks  # noqa: E402
from tests.processes import free_ports, wait_for  # noqa: E402

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PATIENCE_S = 180.0
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
class Opened:
    """What a round needs of either side: start a server and say where; then stop it."""

    start: Callable[[], str]
    stop: Callable[[], None]
    cookies: Callable[[], list[dict[str, Any]]]


@contextmanager
def ours(folder: Path) -> Iterator[Opened]:
    """Start the platform, sign in, and wait until a process is warm."""
    with running_notebooks(folder) as running:
        running.program.wait_for_text("jupyterlab process is warm", within_s=180)
        person = Person(running, "bob", PASSWORD)
        held: list[str] = []

        def start() -> str:
            server = person.ready(f"bench-{len(held)}")
            held.append(server)
            return str(person.look(server)["url"])

        def stop() -> None:
            person.api.post(f"{SERVERS}/{held[-1]}/stop").raise_for_status()
            person.wait_for(held[-1], "stopped")

        yield Opened(start, stop, lambda: _cookies(person.browser))


@contextmanager
def plain(folder: Path) -> Iterator[Opened]:
    """Start a JupyterHub as its own documentation does, with somebody signed in."""
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
        wait_for(lambda: _answers(f"{url}/hub/health"), "a plain Hub", within_s=_PATIENCE_S)
        browser = httpx.Client(follow_redirects=True, timeout=60)
        page = browser.get(f"{url}/hub/login")
        xsrf = str(browser.cookies.get("_xsrf"))
        form = {"username": "bob", "password": "x", "_xsrf": xsrf}
        browser.post(f"{url}/hub/login?next=/hub/token", data=form).raise_for_status()
        assert page.is_success, page.text
        api = httpx.Client(base_url=f"{url}/hub/api", headers={"Authorization": f"token {_TOKEN}"})
        yield Opened(lambda: _started(api, url), lambda: _stopped(api), lambda: _cookies(browser))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _started(api: httpx.Client, url: str) -> str:
    api.post("/users/bob/server", timeout=_PATIENCE_S)
    wait_for(lambda: _server(api).get("ready"), "a ready server", within_s=_PATIENCE_S)
    return f"{url}/user/bob/lab"


def _stopped(api: httpx.Client) -> None:
    api.delete("/users/bob/server", timeout=_PATIENCE_S)
    wait_for(lambda: not _server(api), "the end of a server", within_s=_PATIENCE_S)


def _server(api: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/users/bob").json().get("servers", {}).get("", {})
    return found


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.TransportError:
        return False


def _cookies(client: httpx.Client) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "value": str(one.value),
            "domain": one.domain.removesuffix(".local"),
            "path": one.path,
        }
        for one in client.cookies.jar
    ]


def one_round(side: Opened, browser: Browser) -> tuple[float, float]:
    """Answer the seconds to a ready server, and to a launcher that can be clicked."""
    context = browser.new_context()
    context.add_cookies(side.cookies())  # type: ignore[arg-type]
    page = context.new_page()
    began = time.perf_counter()
    url = side.start()
    ready_s = time.perf_counter() - began
    page.goto(url)
    page.locator(".jp-LauncherCard").first.wait_for(timeout=_PATIENCE_S * 1000)
    usable_s = time.perf_counter() - began
    context.close()
    side.stop()
    return ready_s, usable_s


def measure(rounds: int) -> dict[str, Any]:
    """Run everything; answers the cases."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": []}
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        sides = {
            "ours": stack.enter_context(ours(folders[0])),
            "plain": stack.enter_context(plain(folders[1])),
        }
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for number in range(rounds):
            for name, side in sides.items():
                found[name].append(one_round(side, browser))
            said = ", ".join(f"{name} {seen[-1][0]:.2f} s" for name, seen in found.items())
            print(f"round {number + 1}: ready after {said}", flush=True)
        browser.close()
    return {
        "click_to_server_ready": _case(found, 0),
        "click_to_usable_lab": _case(found, 1),
    }


def _case(found: dict[str, list[tuple[float, float]]], which: int) -> dict[str, Any]:
    median = {name: statistics.median(one[which] for one in seen) for name, seen in found.items()}
    return {
        "ours": round(median["ours"], 3),
        "peer": round(median["plain"], 3),
        "ratio": round(median["ours"] / median["plain"], 4),
        "unit": "s",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.rounds)
    for name, one in cases.items():
        print(f"{name:24} {one['ours']} / {one['peer']} {one['unit']} = {one['ratio']}")
    if options.json:
        print(json.dumps({"bench": "notebooks", "cases": cases}))


if __name__ == "__main__":
    main()
