"""What a job runs whose script is a notebook: `python -m slipway.notebook_job NOTEBOOK [--verify]`.

The output notebook is written after each cell and sent to the portal while it runs, and at the end
whatever the end is. Sending tries again for minutes, because a portal that restarts must not cost
the result of hours. Standard library and papermill only: the environment is the job's own.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

from slipway import job

_NEEDED = ("papermill", "nbclient", "nbformat", "ipykernel")
# Between two sendings while it runs; each pause is longer than the one before.
_FIRST_SENT_AFTER_S, _LONGEST_BETWEEN_S = 10.0, 600.0
_TRIED_FOR_S = 300.0
_TRIED_FOR_WHEN_STOPPED_S = 15.0
_LONGEST_PAUSE_S = 20.0
_REQUEST_TIMEOUT_S = 60.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class Stopped(BaseException):
    """The job was asked to stop."""


@dataclass(frozen=True)
class Door:
    """Where results go: the portal's API, as this workload."""

    url: str
    token: str
    project: str
    workload: str

    def send(self, what: str, body: bytes, kind: str, *, tried_for_s: float) -> str:
        """PUT something of this run, trying again while that may help; returns why not, or ""."""
        place = f"projects/{quote(self.project)}/notebook-runs/{quote(self.workload)}"
        where = f"{place}/{what}"
        request = urllib.request.Request(  # noqa: S310 - the address is the portal's own
            f"{self.url}/api/v1/{where}",
            data=body,
            method="PUT",
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        until, pause = time.monotonic() + tried_for_s, 0.5
        while True:
            fault, may_help = _tried(request)
            if not fault or not may_help or time.monotonic() + pause > until:
                return fault
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)


def _tried(request: urllib.request.Request) -> tuple[str, bool]:
    try:
        with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
            answer.read()
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode("utf-8", "replace")
        return f"{error.code} {_words_of(said)}", error.code in _AGAIN
    except OSError as error:
        return str(error) or type(error).__name__, True
    return "", False


def _words_of(problem: str) -> str:
    try:
        return str(json.loads(problem).get("detail", ""))
    except (ValueError, AttributeError):
        return problem[:200]


def door_of(environment: Mapping[str, str]) -> Door | None:
    """Return the door of the workload this process is part of; None outside of Slipway."""
    names = ("SLIPWAY_URL", "SLIPWAY_TOKEN", "SLIPWAY_PROJECT", "SLIPWAY_WORKLOAD")
    found = [environment.get(name, "") for name in names]
    return Door(found[0].rstrip("/"), *found[1:]) if all(found) else None


class Shipper:
    """Sends the output notebook now and then while it grows, in a thread of its own."""

    def __init__(self, door: Door | None, output: Path, *, name: str) -> None:
        self._door = door
        self._output = output
        self._where = f"output?path={quote(name, safe='')}"
        self._over = threading.Event()
        self._sent = b""
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._door is not None:
            self._thread.start()

    def _watch(self) -> None:
        pause = _FIRST_SENT_AFTER_S
        while not self._over.wait(pause):
            self._ship(tried_for_s=0.0)
            pause = min(_LONGEST_BETWEEN_S, pause * 1.5)

    def finish(self, report: dict[str, Any] | None, *, tried_for_s: float) -> bool:
        """Send what is there at the end, then the report; False when something was not taken."""
        self._over.set()
        if self._door is None:
            return True
        self._thread.join()
        fault = self._ship(tried_for_s=tried_for_s)
        if report is not None:
            body = json.dumps(report).encode()
            fault = (
                self._door.send("report", body, "application/json", tried_for_s=tried_for_s)
                or fault
            )
        if fault:
            sys.stderr.write(f"[slipway] the result was not taken in: {fault}\n")
        return not fault

    def _ship(self, *, tried_for_s: float) -> str:
        try:
            content = self._output.read_bytes()
            json.loads(content)  # it may be half-written at this moment
        except (OSError, ValueError):
            return ""
        if self._door is None or content == self._sent:
            return ""
        fault = self._door.send(
            self._where, content, "application/octet-stream", tried_for_s=tried_for_s
        )
        self._sent = b"" if fault else content
        return fault


def main(arguments: Sequence[str]) -> int:
    """Run the notebook; returns the status to end with."""
    parser = argparse.ArgumentParser(prog="python -m slipway.notebook_job")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--verify", action="store_true")
    given = parser.parse_args(arguments)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"A notebook runs by papermill and ipykernel; this environment lacks "
            f"{', '.join(missing)}.\nNext step: add papermill and ipykernel to the job's "
            "requirements.\n"
        )
        return 2
    _listen()
    # What papermill brings is loaded only here, so that what lacks it is told in words.
    running = import_module("slipway.notebook_running")
    try:
        notebook = running.read_notebook(given.notebook)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{given.notebook} {error}.\n")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="slipway-notebook-"))
    output = folder / given.notebook.name
    shipper = Shipper(door_of(os.environ), output, name=str(given.notebook))
    shipper.start()
    return _run(running, given, notebook, output, shipper)


def _run(
    running: Any, given: argparse.Namespace, notebook: Any, output: Path, shipper: Shipper
) -> int:
    folder = given.notebook.resolve().parent
    try:
        if given.verify:
            report, ran = running.verify_notebook(
                notebook, folder=folder, output=output, on_cell=_tell, shows_output=True
            )
            sys.stdout.write(_verdict(report))
            taken = shipper.finish(report.as_json(), tried_for_s=_TRIED_FOR_S)
            return 0 if taken else 1
        params = {name: running.value_of(text) for name, text in job.current().params.items()}
        ran = running.run_notebook(
            notebook, folder=folder, output=output, params=params, on_cell=_tell
        )
    except Stopped:
        shipper.finish(None, tried_for_s=_TRIED_FOR_WHEN_STOPPED_S)
        return 128 + signal.SIGTERM
    except Exception as error:  # noqa: BLE001 - a kernel that died; what it did is kept all the same
        shipper.finish(None, tried_for_s=_TRIED_FOR_S)
        sys.stderr.write(f"The notebook ended early: {type(error).__name__}: {error}\n")
        return 1
    taken = shipper.finish(None, tried_for_s=_TRIED_FOR_S)
    if ran.error:
        sys.stderr.write(f"The notebook failed in {ran.error}\n")
    return 0 if taken and not ran.error else 1


def _verdict(report: Any) -> str:
    lines = [f"  {one.message} {one.next_step}" for one in report.findings]
    words = "Reproducible" if report.passed else "Not reproducible"
    return "\n".join(
        [f"{words}: {report.ran} of {report.code_cells} cells of code ran.", *lines, ""]
    )


def _tell(number: int, count: int) -> None:
    sys.stdout.write(f"[slipway] cell {number} of {count}\n")
    job.report_step(number)


def _listen() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
