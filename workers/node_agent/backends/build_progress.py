"""The output of an engine's build: its steps, its containers and the line that failed."""

import re
from typing import Final

from slipway.requirement_files.dockerfile import Dockerfile
from workers.node_agent.backends.base import BuildLog

_STEP = re.compile(r"Step (\d+)/\d+ : ")
_RUNNING = re.compile(r" ---> Running in ([0-9a-f]{12,64})\s*")
_IMAGE = re.compile(r" ---> ([0-9a-f]{12,64})\s*")
_STATUS = re.compile(r"returned a non-zero code: (\d+)")
_KILLED: Final = "137"
_TAIL_CHARACTERS: Final = 4_000
_TAIL_LINES: Final = 8
_SHOWN_CHARACTERS: Final = 200


class BuildProgress:
    """Reads the events of a build and passes its output on."""

    def __init__(self, build_log: BuildLog, dockerfile: Dockerfile) -> None:
        self._log = build_log
        self._dockerfile = dockerfile
        self._step = 0
        self._tail = ""
        # The images of all steps so far, and the bytes that their containers have written.
        self.images: list[str] = []
        self.written: dict[str, int] = {}
        # The limit that the build went over, as part of a sentence.
        self.excess = ""

    def add(self, text: str) -> str:
        """Add output of the engine. Returns the container that it has created, if any.

        A command may imitate lines of the engine. It adds containers and images to the true ones
        then, up to one a line, and the build is refused beyond that.
        """
        self._log.write(text)
        if match := _STEP.match(text):
            self._step, self._tail = int(match[1]), ""
        elif match := _RUNNING.fullmatch(text):
            self.written.setdefault(match[1], 0)
            self._check_count(len(self.written))
            return match[1]
        elif match := _IMAGE.fullmatch(text):
            self.images.append(match[1])
            self._check_count(len(self.images) // 2)
        else:
            self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
        return ""

    def _check_count(self, count: int) -> None:
        if count > len(self._dockerfile.instructions):
            self.excess = "a command imitates the output of the engine"

    def failure(self, message: str) -> str:
        """Return why a build failed: the line of the Dockerfile, and its last output."""
        status = _STATUS.search(message)
        why = message.rstrip(".")
        if status and status[1] == _KILLED:
            why = "it was killed, as a rule because it ran out of the memory of the job's tier"
        elif status:
            why = f"it returned the status {status[1]}"
        instructions = self._dockerfile.instructions
        if not 1 <= self._step <= len(instructions):
            return why
        instruction = instructions[self._step - 1]
        shown = instruction.text[:_SHOWN_CHARACTERS]
        lines = [line for line in self._tail.splitlines() if line.strip()][-_TAIL_LINES:]
        sentence = f"line {instruction.number} of the Dockerfile, {shown!r}, failed: {why}"
        return "\n".join((f"{sentence}. Its last lines were:", *lines)) if lines else sentence
