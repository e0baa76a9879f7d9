"""Packages of a git repository, of an address with its hash and of a page of links, over TLS."""

import hashlib
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskReport
from tests.kubernetes_files import write_certificates
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import make_source, make_wheel
from tests.workers.node_agent.test_environments import add_environment

pytestmark = pytest.mark.thorough


class _Quiet(SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A host with a certificate of its own authority, `keys/ca.crt`, that serves `public`."""
    tmp_path.chmod(0o755)
    keys, public = tmp_path / "keys", tmp_path / "public"
    keys.mkdir()
    public.mkdir()
    write_certificates(keys, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "kube-apiserver.crt", keys / "kube-apiserver.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(public)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _repository(folder: Path, source: Path) -> None:
    """Serve the code of a source archive as a git repository with a tag."""
    work = folder.with_suffix(".work")
    work.mkdir()
    subprocess.run(["tar", "-xzf", str(source), "-C", str(work)], check=True)
    (code,) = work.iterdir()

    def git(*words: str) -> None:
        identity = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org"}
        identity |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org"}
        command = ["git", "-C", str(code), *words]
        subprocess.run(command, env={**os.environ, **identity}, check=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    git("tag", "v2")
    git("clone", "-q", "--bare", str(code), str(folder))
    subprocess.run(["git", "-C", str(folder), "update-server-info"], check=True)


def test_addresses_of_a_host_that_the_node_trusts(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path, host: str
) -> None:
    public = tmp_path / "public"
    _repository(public / "harbour.git", make_source(tmp_path, "harbour", "2.0"))
    wheel = make_wheel(public, "lighthouse", "1.0")
    beacon = make_wheel(public, "beacon", "3.0")
    make_wheel(
        public,
        "signals",
        "4.0",
        {
            "signals-4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: signals\n"
            "Version: 4.0\nProvides-Extra: light\n"
            "Requires-Dist: beacon; extra == 'light'\n"
        },
    )
    names = [path.name for path in public.glob("*.whl")]
    (public / "links.html").write_text("".join(f'<a href="{name}">x</a>' for name in names))
    machine = make_machine("--readable", str(tmp_path / "keys"))
    authority = str(tmp_path / "keys" / "ca.crt")
    machine.environment = {
        "PIP_NO_INDEX": "1",
        "PIP_CERT": authority,
        "SSL_CERT_FILE": authority,
        "PIP_FIND_LINKS": f"{host}/links.html",
    }
    machine.start().connected()

    def run(name: str, requirements: str, code: str) -> tuple[TaskReport, str]:
        digest = add_environment(portal, requirements)
        snapshot = portal.state.add_snapshot({"a.py": code})
        task = make_spec(
            *("python", "a.py"),
            snapshot=snapshot,
            environment=digest,
            persistent_key=f"proj/{name}",
        )
        key = portal.state.want(name, task)
        end = eventually(lambda: portal.state.end_of(key), within_s=240)
        reports = portal.state.environment_reports.get(digest, [])
        return end, "".join(report.log for report in reports)

    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    code = "import harbour, beacon, lighthouse\n"
    code += "print(harbour.version, beacon.version, lighthouse.version)"
    end, log = run(
        "t1",
        f"harbour @ git+{host}/harbour.git@v2\n"
        "signals[light]==4.0\n"
        "absent ; sys_platform == 'win32'\n"
        f"lighthouse @ {host}/{wheel.name}#sha256={sha256}\n",
        code,
    )
    assert end.reason == "completed", (end, log)
    assert end.log_tail.startswith("2.0 3.0 1.0")

    lock = f"lighthouse @ {host}/{wheel.name} --hash=sha256:"
    end, log = run("t2", f"{lock}{sha256}\n", "import lighthouse\nprint(lighthouse.version)")
    assert end.log_tail.startswith("1.0"), (end, log)
    end, log = run("t3", f"{lock}{'0' * 64}\n", "import lighthouse")
    assert end.reason == "environment_failed"
    assert "hash" in log.lower()
    end, log = run("t4", f"beacon==3.0 --hash=sha256:{'0' * 64}\n", "import beacon")
    assert end.reason == "environment_failed"
    assert "hash" in log.lower()
    sha256 = hashlib.sha256(beacon.read_bytes()).hexdigest()
    hashes = f"--hash=sha256:{'0' * 64} --hash=sha256:{sha256}"
    end, log = run("t5", f"beacon==3.0 {hashes}\n", "import beacon\nprint(beacon.version)")
    assert end.log_tail.startswith("3.0"), (end, log)
    assert "for this project only" not in log
