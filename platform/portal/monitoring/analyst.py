"""Client of the analysis process, which is started for a pass and reads JSON lines."""

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

import portal
from portal.core.confined_process import confined_command
from portal.monitoring.paths import flat_root, raw_root

_MEMORY_MIB = 3_072
_ANSWERS_WITHIN_S = 300.0


class AnalysisFailed(Exception):
    """A request to the analysis process failed. The message states the reason."""


class Analyst:
    """The analysis process, started with the first request and restarted after a crash.

    It can access captured predictions and `folder`, which holds files for it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def request(self, verb: str, **details: Any) -> Any:
        """Return the result of a request. Raises AnalysisFailed."""
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - a pipe, see below
        line = orjson.dumps({"verb": verb, "facts": details}) + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except OSError as error:
            self.close()
            raise AnalysisFailed("the analysis process died") from error
        answer = orjson.loads(self._answer(process))
        if "fault" in answer:
            raise AnalysisFailed(answer["fault"])
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        process, self._process, self._rest = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            roots = [raw_root(), Path(flat_root())]
            for root in roots:
                root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._process = subprocess.Popen(
                confined_command(
                    "portal.monitoring.analysis",
                    str(_MEMORY_MIB),
                    writable=[self.folder, *roots],
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                # Not our environment, which contains the secrets of the installation.
                env={
                    "PYTHONPATH": str(Path(portal.__path__[0]).parent),
                    "TMPDIR": self.folder,
                    "LANG": "C.UTF-8",
                    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
                    "ARROW_DEFAULT_MEMORY_POOL": "system",
                },
            )
        return self._process

    def _answer(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None  # noqa: S101 - a pipe, see above
        descriptor = process.stdout.fileno()
        until = time.monotonic() + _ANSWERS_WITHIN_S
        pieces = [self._rest]
        with selectors.DefaultSelector() as ready:
            ready.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in pieces[-1]:
                some = b""
                if ready.select(max(0.0, until - time.monotonic())):
                    some = os.read(descriptor, 1 << 20)
                if not some:
                    self.close()
                    raise AnalysisFailed("it needed too much time or memory")
                pieces.append(some)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line


@contextmanager
def analyst() -> Iterator[Analyst]:
    """Provide an analyst for a pass. Its process starts with the first request."""
    with tempfile.TemporaryDirectory() as folder:
        made = Analyst(folder)
        try:
            yield made
        finally:
            made.close()
