"""What is said when Docker's engine is there and does not answer, or is not there."""

import asyncio
from pathlib import Path

import pytest

from workers.node_agent.backends.engine import Engine, EngineError

_IN_TIME = (
    "the Docker engine did not respond within 0.05 s; run `docker info` on this node, and "
    "restart the engine if it does not respond"
)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


def test_an_engine_that_does_not_answer_is_said_in_words(socket_path: Path) -> None:
    async def ask() -> list[str]:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(say_nothing, str(socket_path))
        engine = Engine(socket_path, patience_s=0.05)
        said = []
        async with server:
            for question in (engine.get("/info"), engine.start_with_input("digits", b"launch")):
                with pytest.raises(EngineError) as refused:
                    await question
                said.append(str(refused.value))
        return said

    assert asyncio.run(ask()) == [_IN_TIME, _IN_TIME]


def test_an_engine_that_has_gone_is_an_error_of_the_engine(socket_path: Path) -> None:
    with pytest.raises(EngineError, match="FileNotFoundError"):
        asyncio.run(Engine(socket_path).start_with_input("digits", b"launch"))
