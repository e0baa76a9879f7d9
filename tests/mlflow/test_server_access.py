"""MLflow's server answers the portal alone: peer credentials and a secret in each request."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import mlflow
import pytest

from tests.tracking import TrackingPortal

pytestmark = pytest.mark.postgres

_SEARCH = "/api/2.0/mlflow/experiments/search?max_results=10"
_PATIENCE_S = 10.0
# Connects as another user of the machine, although it is given the socket and the secret.
_STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
try:
    connection.connect("./tracking.sock")
    connection.sendall(sys.stdin.buffer.read())
    print(connection.recv(4096).decode())
except PermissionError:
    print("no permission")
except ConnectionError:
    print("closed")
"""


def _exchange(path: Path, request: bytes) -> bytes:
    """Send bytes to the socket and return all that comes back until the server closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(request)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
        return answer


def _request(
    *headers: str, version: str = "1.1", method: str = "GET", path: str = _SEARCH
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: tracking", *headers, "", ""]
    return "\r\n".join(lines).encode()


def _statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]


@pytest.fixture
def workspace(tracking: TrackingPortal) -> str:
    """The header that names the workspace of alice's project, as any process could send it."""
    slug = tracking.projects["alice"]
    project = tracking.portal.client("alice").get(f"/projects/{slug}").json()["id"]
    return f"X-MLflow-Workspace: {project}"


@pytest.mark.parametrize(
    "path", ["/health", "/version", _SEARCH, "/", "/graphql", "/api/3.0/mlflow/server-info"]
)
def test_nothing_is_answered_without_the_secret(
    tracking: TrackingPortal, workspace: str, path: str
) -> None:
    answer = _exchange(tracking.socket, _request(workspace, path=path))
    assert _statuses(answer) == [401], answer
    assert b"experiments" not in answer


def _variants(secret: str) -> dict[str, list[str]]:
    right, wrong = f"Bearer {secret}", f"Bearer {'x' * len(secret)}"
    return {
        "wrong": [f"Authorization: {wrong}"],
        "empty": ["Authorization: "],
        "one character short": [f"Authorization: {right[:-1]}"],
        "one character more": [f"Authorization: {right}x"],
        "another scheme": [f"Authorization: Basic {secret}"],
        "the secret alone": [f"Authorization: {secret}"],
        "the right one twice": [f"Authorization: {right}", f"Authorization: {right}"],
        "right, then wrong": [f"Authorization: {right}", f"Authorization: {wrong}"],
        "wrong, then right": [f"Authorization: {wrong}", f"authorization: {right}"],
        "joined": [f"Authorization: {wrong}, {right}"],
        "an underscore": [f"Authorization_: {right}", f"HTTP_Authorization: {right}"],
        "a proxy's header": [f"Proxy-Authorization: {right}", f"X-Authorization: {right}"],
        "a cookie": [f"Cookie: authorization={right}"],
        "a continued line": [f"X-A: b\r\n Authorization: {right}"],
    }


@pytest.mark.parametrize("variant", [*_variants("")])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_other_spelling_of_the_secret_passes(
    tracking: TrackingPortal, workspace: str, variant: str, version: str
) -> None:
    headers = _variants(tracking.secret)[variant]
    answer = _exchange(tracking.socket, _request(workspace, *headers, version=version))
    # A malformed head is refused by the HTTP parser itself.
    assert _statuses(answer) in ([401], [400]), (variant, answer)


def test_the_secret_opens_one_request_and_not_those_behind_it(
    tracking: TrackingPortal, workspace: str
) -> None:
    good = _request(workspace, f"Authorization: Bearer {tracking.secret}")
    assert _statuses(_exchange(tracking.socket, good + _request(workspace))) == [200, 401]
    # After a refusal the connection is closed: what was sent behind it is not read at all.
    assert _statuses(_exchange(tracking.socket, _request(workspace) + good)) == [401]
    smuggled = _request(workspace, f"Content-Length: {len(good)}", method="POST") + good
    assert _statuses(_exchange(tracking.socket, smuggled)) == [401]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_is_refused_even_with_the_secret(
    tracking: TrackingPortal, workspace: str
) -> None:
    request = _request(workspace, f"Authorization: Bearer {tracking.secret}")

    def stranger() -> str:
        done = subprocess.run(
            [sys.executable, "-S", "-c", _STRANGER, str(tracking.socket.parent)],
            input=request,
            capture_output=True,
            timeout=30,
            check=True,
        )
        return done.stdout.decode().strip()

    folder, modes = tracking.socket.parent, {}
    assert tracking.socket.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o077 == 0
    assert stranger() == "no permission"
    # Somebody opens the folder and the socket by mistake: the kernel still says who connects.
    for path, mode in ((folder, 0o711), (tracking.socket, 0o666)):
        modes[path] = path.stat().st_mode & 0o777
        path.chmod(mode)
    try:
        answer = stranger()
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert answer == "closed" or _statuses(answer.encode()) == [403], answer


def test_a_client_of_the_portal_cannot_bring_the_secret_or_a_workspace(
    tracking: TrackingPortal,
) -> None:
    """The portal drops what a client says in these headers, and adds its own."""
    rest = tracking.client("charlie")
    hers = tracking.client("alice").new_experiment("hers alone")
    slug = tracking.projects["alice"]
    project = tracking.portal.client("alice").get(f"/projects/{slug}").json()["id"]
    forged = {"X-MLflow-Workspace": project, "X_MLflow_Workspace": project}
    path = f"/api/2.0/mlflow/experiments/get?experiment_id={hers}"
    assert rest.call("GET", path, headers=forged).status_code == 404
    assert rest.call("GET", _SEARCH, headers=forged).status_code == 200
    address = f"{rest.http.base_url}{_SEARCH.lstrip('/')}"
    secret = f"Bearer {tracking.secret}"
    assert httpx.get(address, headers={"Authorization": secret}).status_code == 401
    token = f"Bearer {tracking.portal.tokens['charlie']}"
    for both in ([token, secret], [secret, token]):
        answer = httpx.get(address, headers=[("Authorization", value) for value in both])
        # Whichever the portal reads, it speaks for charlie or for nobody.
        assert answer.status_code in (200, 400, 401)
        assert "hers alone" not in answer.text


def test_an_unmodified_client_works_through_the_portal(
    tracking: TrackingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking.uri("alice"))
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", tracking.portal.tokens["alice"])
    client = mlflow.MlflowClient()
    run = client.create_run(client.create_experiment(f"unmodified {time.time_ns()}"))
    client.log_metric(run.info.run_id, "loss", 0.5)
    client.log_text(run.info.run_id, "by the server", "note.txt")
    assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["note.txt"]
    assert client.get_run(run.info.run_id).data.metrics == {"loss": 0.5}


def test_the_secret_is_a_private_file_and_nowhere_else(tracking: TrackingPortal) -> None:
    at = tracking.portal.installation
    key = at.data_dir / "keys" / "tracking.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(tracking.secret) >= 40
    for pid in (tracking.server.pid, tracking.portal.program.pid):
        for name in ("cmdline", "environ"):
            assert tracking.secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    logs = [path for path in at.folder.rglob("*.log") if path.is_file()]
    assert logs
    assert not [path for path in logs if tracking.secret.encode() in path.read_bytes()]


@pytest.mark.thorough
def test_a_portal_with_another_secret_says_so_and_blames_no_token(
    tracking: TrackingPortal,
) -> None:
    """A key that was replaced while the server ran is a fault of the installation."""
    key = tracking.portal.installation.data_dir / "keys" / "tracking.key"
    kept = key.read_text()
    tracking.server.end()
    key.write_text("another-secret-of-the-server-and-not-of-the-portal")
    try:
        tracking.server = tracking.start_server()
        answer = tracking.client("alice").call("POST", "logged-models/search", json={})
        assert answer.status_code == 503, answer.text
        assert "tracking.key" in answer.json()["message"]
    finally:
        tracking.server.end()
        key.write_text(kept)
        tracking.server = tracking.start_server()
    assert tracking.client("alice").call("GET", _SEARCH).status_code == 200
