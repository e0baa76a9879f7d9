"""A process that has imported torch once and forks the ranks of each test from itself.

Run as a module with the path of a Unix socket. Each connection asks for one job in a line of
JSON and is answered with how every rank ended. It must stay single-threaded: no tensor is
computed with before a fork.
"""

import contextlib
import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import slipway.distributed
from tests.ports import free_ports
from tests.slipway.distributed import cases


def _run_rank(job: Mapping[str, Any], rank: int, port: int, out: Path) -> None:
    os.setsid()
    os.environ.update(
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job["world_size"])}
        | {"LOCAL_WORLD_SIZE": str(job["world_size"]), "MASTER_ADDR": "127.0.0.1"}
        | {"MASTER_PORT": str(port)}
        | job["environment"]
    )
    descriptor = os.open(out / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # A rank that hangs tells where before it is ended.
    faulthandler.dump_traceback_later(max(1.0, job["timeout_s"] - 2), file=2)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    code = 0
    try:
        value = getattr(cases, job["case"])(**job["arguments"])
        (out / f"{rank}.json").write_text(json.dumps(value))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - told to the test
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="slipway-ranks-") as folder:
        out = Path(folder)
        pids: dict[int, int] = {}
        for rank in range(job["world_size"]):
            pid = os.fork()
            if pid == 0:
                _run_rank(job, rank, port, out)
            pids[pid] = rank
        codes = _wait(pids, time.monotonic() + job["timeout_s"], job["grace_s"])
        ends = []
        for rank, code in sorted(codes.items()):
            value, log = out / f"{rank}.json", out / f"{rank}.log"
            ends.append(
                {
                    "code": code,
                    "value": json.loads(value.read_text()) if value.exists() else None,
                    "log": log.read_text(errors="replace") if log.exists() else "",
                }
            )
        return ends


def _wait(pids: dict[int, int], deadline: float, grace_s: float) -> dict[int, int]:
    codes: dict[int, int] = {}
    frozen: set[int] = set()
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid in pids and os.WIFSTOPPED(status):
            frozen.add(pid)
        elif pid in pids:
            codes[pids.pop(pid)] = code = os.waitstatus_to_exitcode(status)
            if code:
                # The others notice within the limits under test, or are ended.
                deadline = min(deadline, time.monotonic() + grace_s)
        elif time.monotonic() > deadline or pids.keys() <= frozen:
            for left in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            deadline, frozen = time.monotonic() + 30, set()
        else:
            time.sleep(0.005)
    return codes


def main() -> None:
    """Serve jobs until the test run closes the connection to this process."""
    # Building an optimizer imports what torch imports late.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    gc.collect()
    gc.freeze()
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        raise SystemExit("the warm process has threads: its children would hang")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        sys.stdout.write(f"ready {slipway.distributed.__name__}\n")
        sys.stdout.flush()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                line = stream.readline()
                if not line:
                    return
                stream.write(json.dumps(_run(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
