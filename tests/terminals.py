"""Terminals in which the command line runs."""

import codecs
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress

from tests.live import ROOT
from tests.portals import RunningPortal
from tests.processes import clean_environment, wait_for


class Terminal:
    """A terminal in which the command line runs."""

    def __init__(self, portal: RunningPortal, *arguments: str) -> None:
        self.master, slave = os.openpty()
        self.resize(30, 111)
        self.text = ""
        # A read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slipway", *arguments],
            env={
                **clean_environment(),
                "PYTHONPATH": f"{ROOT / 'platform'}",
                "SLIPWAY_URL": portal.url,
                "SLIPWAY_TOKEN": portal.tokens["root"],
                "TERM": "xterm",
            },
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self.master, False)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, pattern: str, within_s: float = 60) -> str:
        wait_for(lambda: self._holds(pattern), f"{pattern} in the terminal", within_s=within_s)
        match = re.search(pattern, self.text)
        assert match is not None
        before, self.text = self.text[: match.end()], self.text[match.end() :]
        return before

    def _holds(self, pattern: str) -> bool:
        with suppress(OSError):
            self.text += self._decoder.decode(os.read(self.master, 65536))
        assert self.process.poll() is None or re.search(pattern, self.text), self.text
        return re.search(pattern, self.text) is not None

    def end(self) -> int:
        return self.process.wait(60)
