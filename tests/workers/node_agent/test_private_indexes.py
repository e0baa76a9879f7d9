"""Packages of an index with an account: installed for the project that has its password, alone."""

import base64
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskReport
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import add_to_index, make_wheel
from tests.workers.node_agent.test_environments import OPTION, add_environment

PASSWORD = "p4ss/word+with=signs"


class PrivateIndex(SimpleHTTPRequestHandler):
    """An index that answers those who know the password."""

    def do_GET(self) -> None:
        """Answer 401 to everybody else."""
        account = base64.b64encode(f"ci:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == f"Basic {account}":
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of a private index with one package."""
    add_to_index(tmp_path / "private", make_wheel(tmp_path, "harbour", "1.0"))
    handler = partial(PrivateIndex, directory=str(tmp_path / "private"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.thorough
def test_an_index_with_an_account_serves_the_project_that_has_its_password(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path, index: str
) -> None:
    (tmp_path / "none").mkdir()
    machine = make_machine()
    machine.environment = {"PIP_" + OPTION.upper().replace("-", "_"): f"file://{tmp_path}/none"}
    machine.start().connected()
    digest = add_environment(
        portal, f"--extra-{OPTION} http://ci:${{ACME_TOKEN}}@{index}\nharbour\n"
    )
    snapshot = portal.state.add_snapshot({"a.py": "import harbour\nprint(harbour.version)"})

    def run(project: str, secrets: dict[str, str]) -> TaskReport:
        spec = portal.state.environments[digest]
        portal.state.environments[digest] = spec.model_copy(update={"secrets": secrets})
        task = make_spec(
            *("python", "a.py"),
            snapshot=snapshot,
            environment=digest,
            persistent_key=f"{project}/x",
        )
        key = portal.state.want(f"t-{project}", task)
        return eventually(lambda: portal.state.end_of(key), within_s=120)

    end = run("proj1", {"ACME_TOKEN": PASSWORD})
    assert (end.reason, end.log_tail.strip()) == ("completed", "1.0"), end
    end = run("proj2", {"ACME_TOKEN": "guessed"})
    assert end.reason == "environment_failed", "what one project may install, another may not"
    end = run("proj3", {})
    assert "needs the secret ACME_TOKEN" in end.message
    log = "".join(report.log for report in portal.state.environment_reports[digest])
    assert f"http://{index}" in log
    assert not any(text in log + end.message for text in (PASSWORD, "guessed"))
    assert not [*machine.data_dir.rglob(".netrc")]
