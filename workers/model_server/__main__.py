"""`python -m workers.model_server`: one replica in the foreground, described by SLIPWAY_REPLICA.

The variable holds the address of its orders, which are asked for with SLIPWAY_TOKEN, or the path of
a file with them, or the JSON itself.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import httpx
import pydantic
import uvloop

from slipway.schemas.serving import ReplicaSpec, ReplicaState
from workers.model_server.errors import NotReady
from workers.model_server.files import fetch_files
from workers.model_server.formats import open_model
from workers.model_server.memory import retain_freed_memory
from workers.model_server.preparation import prepare_model
from workers.model_server.reports import Reporter
from workers.model_server.server import ReplicaServer

log = logging.getLogger(__name__)
VARIABLE: Final = "SLIPWAY_REPLICA"
_TOKEN: Final = "SLIPWAY_TOKEN"  # noqa: S105 - the name of a variable
_ORDERS_WITHIN_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.5
_NOT_READY: Final = 3
_USAGE: Final = 2
_DRAIN_S: Final = 10.0


def read_spec(text: str) -> ReplicaSpec:
    """Parse a spec from JSON, a file or a URL. Raises ValueError or OSError."""
    token = os.environ.pop(_TOKEN, "")
    if text.startswith(("http://", "https://")):
        text = _fetched(text, token)
    if not text.lstrip().startswith("{"):
        text = Path(text).read_text(encoding="utf-8")
    return ReplicaSpec.model_validate_json(text)


def _fetched(url: str, token: str) -> str:
    """Fetch the spec, retrying until the portal responds. Raises OSError on refusal or timeout."""
    deadline = time.monotonic() + _ORDERS_WITHIN_S
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10.0) as client:
        while True:
            try:
                answer = client.get(url)
                if answer.status_code == httpx.codes.OK:
                    return answer.text
                message = f"the portal responded with {answer.status_code}"
                is_final = answer.is_client_error
            except httpx.HTTPError as error:
                message, is_final = f"the portal cannot be reached ({error})", False
            if is_final or time.monotonic() > deadline:
                raise OSError(0, message)
            time.sleep(_ASK_AGAIN_S)


def main() -> int:
    """Load, warm up, verify, listen until SIGTERM, and return the exit status."""
    # A library that the warm process imported may have configured it.
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        # Remove the secret and the token, because the model's code runs in this process.
        spec = read_spec(os.environ.pop(VARIABLE, ""))
    except pydantic.ValidationError as error:
        # The input is not printed: it holds the secret.
        places = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        sys.stderr.write(f"slipway model server: {VARIABLE} is not valid: {places}\n")
        return _USAGE
    except OSError as error:
        sys.stderr.write(f"slipway model server: {VARIABLE} cannot be read: {error.strerror}\n")
        return _USAGE
    retain_freed_memory()
    reporter = Reporter(spec)
    try:
        return uvloop.run(_serve(spec, reporter))
    except NotReady as error:
        reporter.report(ReplicaState.FAILED, str(error))
        return _NOT_READY
    finally:
        reporter.close()


async def _serve(spec: ReplicaSpec, reporter: Reporter) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    began = time.perf_counter()
    reporter.report(ReplicaState.LOADING)
    model = open_model(spec, fetch_files(spec))
    load_ms = (time.perf_counter() - began) * 1000
    reporter.report(ReplicaState.WARMING, load_ms=load_ms)
    began = time.perf_counter()
    prepared = prepare_model(spec, model)
    model, engine = prepared.model, prepared.engine
    warm_ms = (time.perf_counter() - began) * 1000
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
    server = ReplicaServer(spec, model, engine)
    try:
        address = await server.listen()
    except OSError as error:
        raise NotReady(f"It cannot listen at {spec.listen}: {error.strerror}") from error
    reporter.report(
        ReplicaState.READY,
        address=address,
        signature=model.signature,
        load_ms=load_ms,
        warm_ms=warm_ms,
        forward_ms=engine.forward_ms,
        batching=prepared.batching,
    )
    await stop.wait()
    reporter.report(ReplicaState.DRAINING, address=address)
    await server.drain(within_s=_DRAIN_S)
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
