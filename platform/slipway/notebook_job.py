"""Entry point of notebook jobs: `python -m slipway.notebook_job NOTEBOOK [--verify] [--keep FILE]`.

The output notebook is written after each cell. It is uploaded to the portal during the run, and
at the end whatever the result. Uploads are retried for minutes, because a restart of the portal
must not lose the result of hours. With `--keep` it also becomes a file of the job. Standard
library and papermill only: the environment belongs to the job.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import quote

from slipway import job
from slipway.notebook_outputs import truncate_notebook
from slipway.step_io import WORK_DIR_VARIABLE
from slipway.workload_client import ApiAddress, api_address_from

_NEEDED = ("papermill", "nbclient", "nbformat", "ipykernel")
# Pauses between uploads while the notebook runs. Each pause is longer than the one before.
_FIRST_SENT_AFTER_S, _LONGEST_BETWEEN_S = 10.0, 600.0
_TRIED_FOR_S = 300.0
# Equal to `slipway.schemas.notebook_files.MAX_NOTEBOOK_BYTES`, whose module needs pydantic.
_LIMIT_BYTES = 20 * 1024**2
_TRIED_FOR_WHEN_STOPPED_S = 15.0


class JobStopRequested(BaseException):
    """The job was asked to stop."""


class Shipper:
    """Sends the output notebook now and then while it grows, in a thread of its own."""

    def __init__(self, api: ApiAddress | None, output: Path, *, name: str) -> None:
        self._api = api
        self._output = output
        self._name = name
        self._over = threading.Event()
        self._sent = b""
        self._shortened = ""
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._api is not None:
            self._thread.start()

    def _watch(self) -> None:
        pause = _FIRST_SENT_AFTER_S
        while not self._over.wait(pause):
            # The file may be incomplete just now. The next attempt follows soon.
            with suppress(OSError, ValueError):
                self._ship(tried_for_s=0.0)
            pause = min(_LONGEST_BETWEEN_S, pause * 1.5)

    def finish(self, report: dict[str, Any] | None, *, tried_for_s: float) -> bool:
        """Send the final notebook, then the report. False if something was not accepted."""
        self._over.set()
        if self._api is None:
            return True
        self._thread.join()
        try:
            fault = self._ship(tried_for_s=tried_for_s)
        except FileNotFoundError:
            fault = ""  # no cell has run
        except (OSError, ValueError) as error:
            fault = f"the output notebook cannot be read: {error}"
        if self._shortened:
            sys.stderr.write(f"[slipway] The output notebook is shortened: {self._shortened}.\n")
        if report is not None:
            body = json.dumps(report).encode()
            fault = self._send(self._api, "report", body, "application/json", tried_for_s) or fault
        if fault:
            sys.stderr.write(f"[slipway] the result was not taken in: {fault}\n")
        return not fault

    def _ship(self, *, tried_for_s: float) -> str:
        content = self._output.read_bytes()
        json.loads(content)
        if self._api is None or content == self._sent:
            return ""
        fitting = truncate_notebook(content, _LIMIT_BYTES)
        self._shortened = fitting.sentence
        kind = "application/octet-stream"
        what = f"output?path={quote(self._name, safe='')}"
        fault = self._send(self._api, what, fitting.content, kind, tried_for_s)
        self._sent = b"" if fault else content
        return fault

    def _send(self, api: ApiAddress, what: str, body: bytes, kind: str, tried_for_s: float) -> str:
        where = f"notebook-runs/{quote(api.workload, safe='')}/{what}"
        return api.send("PUT", where, body, kind=kind, tried_for_s=tried_for_s).error


def main(arguments: Sequence[str]) -> int:
    """Run the notebook, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slipway.notebook_job")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--keep", type=Path)
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
    # Import papermill and its dependencies only here, so that a clear message can report that they
    # are missing. jsonschema works without this grammar, which takes longest of all to build.
    cast("dict[str, object]", sys.modules).setdefault("rfc3987_syntax", None)
    running = import_module("slipway.notebook_execution")
    try:
        notebook = running.read_notebook(given.notebook)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{given.notebook} {error}.\n")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="slipway-notebook-"))
    output = folder / given.notebook.name
    shipper = Shipper(api_address_from(os.environ), output, name=str(given.notebook))
    shipper.start()
    # Cells run in the folder of the notebook, but files are kept below that of the job.
    os.environ[WORK_DIR_VARIABLE] = str(Path.cwd())
    try:
        return _run(running, given, notebook, output, shipper)
    finally:
        if given.keep is not None and output.exists():
            given.keep.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(output, given.keep)


def _run(
    running: Any, given: argparse.Namespace, notebook: Any, output: Path, shipper: Shipper
) -> int:
    folder = given.notebook.resolve().parent
    try:
        if given.verify:
            report, ran = running.verify_notebook(
                notebook, folder=folder, output=output, on_cell=_report_cell, shows_output=True
            )
            sys.stdout.write(_verdict(report))
            taken = shipper.finish(report.as_json(), tried_for_s=_TRIED_FOR_S)
            return 0 if taken else 1
        params = {name: running.value_of(text) for name, text in job.current().params.items()}
        ran = running.run_notebook(
            notebook, folder=folder, output=output, params=params, on_cell=_report_cell
        )
    except JobStopRequested:
        shipper.finish(None, tried_for_s=_TRIED_FOR_WHEN_STOPPED_S)
        return 128 + signal.SIGTERM
    except Exception as error:  # noqa: BLE001 - a kernel that died: its output is stored
        shipper.finish(None, tried_for_s=_TRIED_FOR_S)
        sys.stderr.write(f"The notebook ended early: {type(error).__name__}: {error}\n")
        return 1
    taken = shipper.finish(None, tried_for_s=_TRIED_FOR_S)
    if ran.error:
        sys.stderr.write(f"The notebook failed in {ran.error}\n")
    return 0 if taken and not ran.error else 1


def _verdict(report: Any) -> str:
    lines = [f"  {finding.message} {finding.next_step}" for finding in report.findings]
    words = "Reproducible" if report.passed else "Not reproducible"
    return "\n".join(
        [f"{words}: {report.ran} of {report.code_cells} cells of code ran.", *lines, ""]
    )


def _report_cell(number: int, count: int) -> None:
    sys.stdout.write(f"[slipway] cell {number} of {count}\n")
    job.report_step(number)


def _listen() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise JobStopRequested

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
