"""A project's Dockerfile: its instructions, the images it starts from and the files it copies.

Read by the portal before a job is queued and by the node before it builds. An image of another
project is on the same engine, so names that could lead to it are refused: our own images, and
beginnings of image ids. What Docker would read differently is refused, too.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from slipway.schemas.base import forbidden_character

MAX_BYTES: Final = 64 * 1024
MAX_INSTRUCTIONS: Final = 500
_SHOWN_CHARACTERS: Final = 100
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.*)")
_CONTINUED = re.compile(r"\\[ \t]*$")
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9._/:-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?(?:@sha256:[0-9a-f]+)?"
)
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]+", re.IGNORECASE)
_OWN_IMAGE = re.compile(r"(?:^|/)slipway-(?:environment|project-image)\b", re.IGNORECASE)
_STAGE = re.compile(r"[a-z][a-z0-9._-]*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([A-Za-z0-9._/:@-]*))?\})")
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(?:=(\"?)([A-Za-z0-9._/:@${}-]*)\2)?")
# Without quotes and backslashes, which Docker takes out of flags.
_FLAG = re.compile(r"--([a-z-]+)(?:=([A-Za-z0-9._/:@+,${}=-]*))?")
# Docker may or may not count these as spaces, which decides where a line ends.
_UNCLEAR_SPACE = re.compile(r"[^\S \t\r\n]|\r(?!\n)")
_KEYWORDS: Final = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"),
        *("LABEL", "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
        "WORKDIR",
    )
)
_FLAGS: Final = {
    "FROM": {"platform"},
    "COPY": {"from", "chown"},
    "ADD": {"chown"},
    "RUN": set[str](),
    "HEALTHCHECK": {"interval", "timeout", "start-period", "start-interval", "retries"},
}
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/+@ -]+")
_PATTERN = re.compile(r"[A-Za-z0-9._/+@*?\[\]^ -]+")


class DockerfileRefused(ValueError):
    """A line of a Dockerfile that cannot be used: its number, the reason and what works instead."""

    def __init__(self, number: int, text: str, reason: str, next_step: str) -> None:
        self.number = number
        self.next_step = next_step
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
        super().__init__(f"Line {number} of the Dockerfile, {shown!r}, is not accepted: {reason}.")


@dataclass(frozen=True)
class Instruction:
    """An instruction with its continuations: the number of its first line, keyword and value."""

    number: int
    keyword: str
    value: str

    @property
    def text(self) -> str:
        """The instruction as one line."""
        return f"{self.keyword} {self.value}".strip()

    def refused(self, reason: str, next_step: str) -> DockerfileRefused:
        """Return the refusal of this instruction."""
        return DockerfileRefused(self.number, self.text, reason, next_step)

    @property
    def flags(self) -> dict[str, str]:
        """The flags before the value. Raises DockerfileRefused for one of an unclear form."""
        flags = {}
        for word in self.value.split():
            if not word.startswith("--"):
                break
            match = _FLAG.fullmatch(word)
            if match is None:
                raise self.refused(f"the option {word[:50]} cannot be read", "Write it plainly.")
            flags[match[1]] = match[2] or ""
        return flags

    @property
    def words(self) -> list[str]:
        """The value without its flags, in words. Those of the JSON form are its strings."""
        rest = self.value
        while match := re.match(r"\s*--[a-z-]+(?:=\S*)?(?:\s+|$)", rest):
            rest = rest[match.end() :]
        if rest.lstrip().startswith("["):
            try:
                strings = json.loads(rest)
            except ValueError:
                return rest.split()
            if isinstance(strings, list) and all(isinstance(item, str) for item in strings):
                return strings
        return rest.split()


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of a Dockerfile, the images that it names, and the files that it copies.

    `copies` are paths in the build context, None if only the whole context is sure to have them.
    """

    instructions: tuple[Instruction, ...]
    images: tuple[str, ...]
    copies: tuple[str, ...] | None


def is_dockerfile(path: str) -> bool:
    """Return whether a file is a Dockerfile, by its name."""
    name = posixpath.basename(path)
    return name == "Dockerfile" or name.startswith("Dockerfile.") or name.endswith(".Dockerfile")


def parse_dockerfile(text: str) -> Dockerfile:
    """Return a Dockerfile that can be built. Raises DockerfileRefused for the first bad line.

    It is not run, so a command or a path in it may still fail.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise DockerfileRefused(
            *(1, "…", f"the file is larger than {MAX_BYTES >> 10} KiB"),
            "Move long commands to a script in the folder, and COPY and RUN it.",
        )
    unclear = _UNCLEAR_SPACE.search(text)
    if bad := forbidden_character(text, multiline=True) or (unclear and unclear[0]):
        number = text[: text.index(bad)].count("\n") + 1
        raise DockerfileRefused(
            *(number, "…", f"it contains the character U+{ord(bad):04X}"), "Remove it."
        )
    instructions = tuple(_instructions(text))
    for instruction in instructions:
        _check(instruction)
    return Dockerfile(instructions, tuple(_images(instructions)), _copies(instructions))


def _instructions(text: str) -> Iterator[Instruction]:
    """Yield instructions, joined as Docker joins lines."""
    pending, start, count = "", 0, 0
    may_be_directive = True
    for number, raw in enumerate(re.split(r"\r\n|\n", text.removeprefix("\ufeff")), start=1):
        line = raw.strip()
        if line.startswith("#"):
            directive = _DIRECTIVE.fullmatch(line) if may_be_directive else None
            if directive and directive[1].lower() == "escape" and directive[2].strip() != "\\":
                raise DockerfileRefused(
                    *(number, line, "lines are continued with a backslash"), "Remove the line."
                )
            continue
        if not line:
            continue
        may_be_directive = False
        start = start or number
        if _CONTINUED.search(line):
            pending += _CONTINUED.sub("", raw.lstrip() if not pending else raw)
            continue
        joined = (pending + raw).strip()
        pending = ""
        keyword, value = (*re.split(r"[ \t]+", joined, maxsplit=1), "")[:2]
        count += 1
        if count > MAX_INSTRUCTIONS:
            raise DockerfileRefused(
                *(start, joined, f"there are more than {MAX_INSTRUCTIONS} instructions"),
                "Join some with &&.",
            )
        yield Instruction(start, keyword.upper(), value.strip())
        start = 0
    if pending.strip():
        raise DockerfileRefused(
            *(start, pending.strip(), "the last line ends with a backslash"), "Remove it."
        )


def _check(instruction: Instruction) -> None:
    """Raise DockerfileRefused for what only other builders know, or what we do not run."""
    if instruction.keyword not in _KEYWORDS:
        raise instruction.refused("it begins with no instruction of a Dockerfile", _EXAMPLE)
    if instruction.keyword == "ONBUILD":
        raise instruction.refused(
            "nothing is built from the image of a job", "Write the instruction itself."
        )
    for name in instruction.flags:
        if name not in _FLAGS.get(instruction.keyword, {name}):
            raise instruction.refused(
                f"--{name} needs BuildKit, and nodes build without it",
                "Write it without the option.",
            )
    if instruction.keyword == "ADD" and not all(map(_PATTERN.fullmatch, instruction.words[:-1])):
        raise instruction.refused(
            "ADD takes paths in the folder only, because the engine would fetch an address outside "
            "of the limits of the build",
            "Fetch it with RUN, such as RUN curl -fsSLO ADDRESS.",
        )
    is_shell = instruction.keyword in ("RUN", "COPY", "ADD")
    if is_shell and re.search(r"<<-?[\"']?[A-Za-z_]", instruction.value):
        raise instruction.refused(
            "texts after << need BuildKit, and nodes build without it",
            "Join the commands with &&, or COPY a script and RUN it.",
        )


def _images(instructions: tuple[Instruction, ...]) -> Iterator[str]:
    """Yield the images of FROM and COPY --from, without stages and `scratch`."""
    values: dict[str, str | None] = {}
    stages: list[str] = []
    for instruction in instructions:
        if instruction.keyword == "FROM":
            words = instruction.words
            if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
                raise instruction.refused("it is not FROM IMAGE, or FROM IMAGE AS NAME", _EXAMPLE)
            name = _expanded(instruction, words[0], values)
            if name != "scratch" and name.lower() not in stages:
                yield _checked_image(instruction, name)
            stage = words[2] if len(words) == 3 else str(len(stages))
            if len(words) == 3 and not _STAGE.fullmatch(stage):
                raise instruction.refused(f"{stage[:50]} is no name of a stage", _EXAMPLE)
            stages.append(stage.lower())
        elif not stages:
            if instruction.keyword != "ARG":
                raise instruction.refused("FROM or ARG comes first", _EXAMPLE)
            _add_arguments(instruction, values)
        elif instruction.keyword == "COPY" and "from" in instruction.flags:
            name = instruction.flags["from"]
            is_index = name.isascii() and name.isdigit() and int(name) < len(stages)
            if name.lower() not in stages and not is_index:
                yield _checked_image(instruction, name)
    if not stages:
        raise DockerfileRefused(1, "", "it has no FROM", _EXAMPLE)


_EXAMPLE: Final = "For example: FROM python:3.12-slim"


def _add_arguments(instruction: Instruction, values: dict[str, str | None]) -> None:
    """Note the defaults of an ARG before the first FROM. None stands for one of another form."""
    for word in instruction.words:
        match = _ARGUMENT.fullmatch(word)
        if match is None:
            values[word.partition("=")[0]] = None
        else:
            try:
                values[match[1]] = _expanded(instruction, match[3] or "", values)
            except DockerfileRefused:
                values[match[1]] = None


def _expanded(instruction: Instruction, text: str, values: dict[str, str | None]) -> str:
    def value_of(match: re.Match[str]) -> str:
        value = values.get(match[1] or match[2], "")
        if value is None:
            raise instruction.refused(
                f"the default of {match[1] or match[2]} cannot be read",
                "Write the name of the image itself.",
            )
        return value or match[3] or ""

    expanded = _VARIABLE.sub(value_of, text)
    if "$" in expanded:
        raise instruction.refused(
            "only variables of an ARG before FROM can be read, such as ${VERSION} or "
            "${VERSION:-3.12}",
            "Write the name of the image itself.",
        )
    return expanded


def _checked_image(instruction: Instruction, name: str) -> str:
    if not _IMAGE.fullmatch(name):
        raise instruction.refused(f"{name[:100]!r} is not the name of an image", _EXAMPLE)
    if _IMAGE_ID.fullmatch(name):
        raise instruction.refused(
            "it may be the id of an image", f"Add its tag, such as {name[:50]}:latest."
        )
    if _OWN_IMAGE.search(name):
        raise instruction.refused("images of this platform belong to a project", _EXAMPLE)
    return name


def _copies(instructions: tuple[Instruction, ...]) -> tuple[str, ...] | None:
    """Return the files that COPY and ADD name, None if some name can stand for several."""
    paths: list[str] = []
    for instruction in instructions:
        if instruction.keyword not in ("COPY", "ADD") or "from" in instruction.flags:
            continue
        for word in instruction.words[:-1]:
            path = posixpath.normpath(word).lstrip("/")
            if not _PLAIN_PATH.fullmatch(word) or path.startswith("..") or path in ("", "."):
                return None
            paths.append(path)
    return tuple(sorted(set(paths)))
