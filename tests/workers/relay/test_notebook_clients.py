"""The notebooks' proxy and the Hub reach a server in a pool through its door alone."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from jupyterhub.httpclient import JupyterHubHTTPClient
from traitlets.config import Config

from notebooks_service.relay import ThroughRelay, door_of
from portal.config.notebooks import node_program
from slipway.schemas.relay import RelayTarget
from tests.ports import free_ports
from tests.processes import ROOT, Program

TARGET = RelayTarget(workload_id="wkl_one", epoch=1)
_PATIENCE_S = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of doors. Its path is short, because sockets are in it."""
    made = Path(tempfile.mkdtemp(prefix="doors-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


async def page(request: web.Request) -> web.StreamResponse:
    """Answer with what arrived, or echo over a WebSocket."""
    if request.headers.get("Upgrade"):
        channel = web.WebSocketResponse()
        await channel.prepare(request)
        async for message in channel:
            await channel.send_str(f"echo {message.data}")
        return channel
    return web.Response(text=f"{request.headers['Host']} {request.path}")


@asynccontextmanager
async def server_behind(door: Path) -> AsyncIterator[None]:
    """Serve `page` at a door."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(door)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def proxy_of(folder: Path) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """Yield the address of a proxy with a route to TARGET, and a client of it."""
    port, api_port = free_ports(2)
    own, secret = f"127.0.0.1:{port}", secrets.token_hex(16)
    nobody = "http://127.0.0.1:9"
    program = Program(
        [
            *(node_program(), str(ROOT / "notebooks_service" / "proxy.mjs")),
            *("--ip", "127.0.0.1", "--port", str(port), "--host", own, "--url", f"http://{own}"),
            *("--api-ip", "127.0.0.1", "--api-port", str(api_port)),
            *("--default-target", nobody, "--error-target", nobody),
            *("--relay-folder", str(folder)),
        ],
        env=dict(os.environ) | {"CONFIGPROXY_AUTH_TOKEN": secret},
        output=folder / "proxy.log",
    )
    headers = {"Authorization": f"token {secret}"}
    try:
        async with asyncio.timeout(_PATIENCE_S), aiohttp.ClientSession() as client:
            route = {"target": f"http://{TARGET.address}"}
            while True:
                try:
                    await client.post(
                        f"http://127.0.0.1:{api_port}/api/routes/user/a/",
                        json=route,
                        headers=headers,
                    )
                    break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
            yield f"http://{own}", client
    finally:
        program.end()


def test_pages_and_websockets_go_through_the_door(folder: Path) -> None:
    async def run() -> None:
        async with proxy_of(folder) as (url, client):
            async with server_behind(folder / TARGET.door):
                answer = await client.get(f"{url}/user/a/lab")
                host = url.removeprefix("http://")
                assert (answer.status, await answer.text()) == (200, f"{host} /user/a/lab")
                async with client.ws_connect(f"{url}/user/a/api/channels") as channel:
                    await channel.send_str("hello")
                    assert await channel.receive_str() == "echo hello"
            gone = await client.get(f"{url}/user/a/lab")
            assert gone.status == 503

    asyncio.run(run())


def test_the_hub_asks_a_server_through_the_door(folder: Path) -> None:
    async def run() -> None:
        config = Config()
        config.JupyterHubHTTPClient.session_options = {"middlewares": (ThroughRelay(folder),)}
        hub = JupyterHubHTTPClient(config=config)
        session = aiohttp.ClientSession(**hub.session_options)
        async with server_behind(folder / TARGET.door), session:
            answer = await session.get(f"http://{TARGET.address}/user/a/api")
            assert await answer.text() == f"{TARGET.address} /user/a/api"
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(f"http://{'0' * 32}.relay.invalid:8888/")

    asyncio.run(run())


@pytest.mark.parametrize(
    "host",
    ["relay.invalid", "..relay.invalid", "a/b.relay.invalid", f"{'0' * 33}.relay.invalid", "a.b"],
)
def test_other_names_are_no_doors(folder: Path, host: str) -> None:
    assert door_of(host, folder) is None
