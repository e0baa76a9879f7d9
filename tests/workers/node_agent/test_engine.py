"""A Docker engine that is absent, closed to the agent, too old, or does not respond."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.workers.machines import ROOT
from workers.node_agent.backends.engine import Engine, EngineError

_IN_TIME = (
    "the Docker engine did not respond within 0.05 s; run `docker info` on this node, and "
    "restart the engine if it does not respond"
)
_NOBODY = 65_534


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


@asynccontextmanager
async def engine_of_version(path: Path, api: str | None) -> AsyncIterator[None]:
    """An engine that reports the version of its API, and responds to nothing else."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if api and request.startswith(b"GET /version "):
            body = json.dumps({"ApiVersion": api}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(respond, str(path)):
        yield


def calls(engine: Engine) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: engine.call(lambda docker: docker.info()),
        lambda: engine.start_with_input("digits", b"launch"),
        lambda: engine.build(b"", "slipway-environment:test", print),
    ]


@pytest.mark.parametrize("api", [None, "1.41"])
def test_an_engine_that_does_not_respond_is_reported_in_time(
    socket_path: Path, api: str | None
) -> None:
    async def messages() -> list[str]:
        refused = []
        async with engine_of_version(socket_path, api):
            for call in calls(Engine(socket_path, patience_s=0.05)):
                with pytest.raises(EngineError) as error:
                    await call()
                refused.append(str(error.value))
        return refused

    assert asyncio.run(messages()) == [_IN_TIME] * 3


def test_an_engine_that_has_stopped_is_an_engine_error(socket_path: Path) -> None:
    for call in calls(Engine(socket_path)):
        with pytest.raises(EngineError, match=r"no Docker engine listens on .*; start"):
            asyncio.run(call())  # type: ignore[arg-type]


def reason_of_exit(path: Path, folder: Path, **options: int) -> str:
    """Output of an agent that may only run containers, and cannot."""
    token = folder / "token"
    token.write_text("token")
    token.chmod(0o644)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "workers.node_agent", "--url", "http://127.0.0.1:1"),
            *("--name", "docked", "--data-dir", str(folder / "node"), "--token-file", str(token)),
            *("--backend", "docker", "--docker-socket", str(path)),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert result.returncode == 1
    return str(result.stderr)


def test_an_agent_without_an_engine_says_where_it_looked(socket_path: Path, tmp_path: Path) -> None:
    assert f"There is no Docker engine at {socket_path}: start it" in reason_of_exit(
        socket_path, tmp_path
    )


@pytest.mark.thorough
def test_an_agent_whose_engine_has_stopped_says_so(socket_path: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(socket_path))
    assert f"no Docker engine listens on {socket_path}; start it" in reason_of_exit(
        socket_path, tmp_path
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start an agent as another user")
def test_an_agent_that_may_not_open_the_socket_says_what_to_do() -> None:
    with TemporaryDirectory(prefix="sl-") as name:
        folder = Path(name)
        path = folder / "docker.sock"
        os.chown(folder, _NOBODY, _NOBODY)
        with socket.socket(socket.AF_UNIX) as engine:
            engine.bind(str(path))
            engine.listen()
            path.chmod(0o600)
            output = reason_of_exit(path, folder, user=_NOBODY, group=_NOBODY)
    assert f"the node agent may not open {path}; add its user to the group" in output


def test_an_engine_too_old_to_hide_control_groups_is_refused(
    socket_path: Path, tmp_path: Path
) -> None:
    async def output() -> str:
        async with engine_of_version(socket_path, "1.40"):
            return await asyncio.to_thread(reason_of_exit, socket_path, tmp_path)

    assert "version 1.40 of its API, and Slipway needs 1.41; update" in asyncio.run(output())


def test_an_agent_without_docker_does_not_import_its_package(tmp_path: Path) -> None:
    script = (
        "import sys, workers.node_agent.agent\n"
        "print([name for name in ('docker', 'requests', 'urllib3') if name in sys.modules])\n"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert result.stdout == b"[]\n"
