"""Conda environments: `environment.yml`, `conda-lock.yml` and lists of `@EXPLICIT` packages.

Read by the portal. Nodes get the canonical form (`conda_packages`).
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from slipway.requirement_files.conda_documents import PIP_COMMENT, PLATFORM_COMMENT
from slipway.requirement_files.conda_packages import (
    EXPLICIT,
    SPEC,
    CondaEnvironment,
    LockedArchive,
    archive_of,
    check_variables,
)
from slipway.requirement_files.lines import RequirementRefused
from slipway.requirement_files.yaml_lines import YamlNode, YamlRefused, parse_yaml
from slipway.schemas.base import forbidden_character

MAX_ENVIRONMENT_CHARACTERS: Final = 256 * 1024
MAX_LOCK_CHARACTERS: Final = 8 * 1024 * 1024
MAX_PACKAGES: Final = 5000
MAX_VARIABLES: Final = 100
# Nodes are Linux on one of these processors.
PLATFORMS: Final = ("linux-64", "linux-aarch64")
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
# No line of requirements for pip looks like these keys of a document.
_KEY = re.compile(r"^(?:dependencies|channels|package):(?:\s|$)", re.MULTILINE)
_SELECTOR = re.compile(r"^\s*-?[^#]*#\s*\[[^\]]*\]\s*$")
Resolve = Callable[[str], str | None]


@dataclass(frozen=True)
class CondaFile:
    """The content of a file. `pip` are the lines for pip with the numbers of their lines.

    `has_default_channel` tells that the file names no channel.
    """

    environment: CondaEnvironment
    pip: tuple[tuple[int, str], ...] = ()
    has_default_channel: bool = False


def is_conda_lock(path: str) -> bool:
    """Return whether a file is a lock of conda-lock, by its name."""
    return posixpath.basename(path).endswith(("conda-lock.yml", "conda-lock.yaml"))


def parse_conda(text: str, *, file: str, resolve: Resolve) -> CondaFile:
    """Return the content of a file of conda. Raises RequirementRefused with the line.

    `resolve` returns the address of a channel that may be used for its name or address, or None.
    """
    limit = MAX_LOCK_CHARACTERS if is_conda_lock(file) else MAX_ENVIRONMENT_CHARACTERS
    if text.lstrip("\ufeff").lstrip().startswith(("#", "@")) and is_explicit(text):
        limit = MAX_LOCK_CHARACTERS
    if len(text) > limit:
        raise RequirementRefused(
            *(file, 1, "…", f"the file is longer than {limit >> 10} KiB"),
            "Remove packages that others already depend on.",
        )
    if bad := forbidden_character(text, multiline=True):
        number = text[: text.index(bad)].count("\n") + 1
        raise RequirementRefused(
            *(file, number, "…", f"it contains the character U+{ord(bad):04X}"), "Remove it."
        )
    reader = _Reader(file, text.splitlines(), resolve)
    if is_explicit(text):
        return reader.explicit()
    try:
        root = parse_yaml(text.removeprefix("\ufeff"))
    except YamlRefused as error:
        raise reader.refused(error.line, str(error), "Correct the file.") from error
    if root.mapping is None:
        raise reader.refused(
            root.line,
            "the file is no mapping of keys to values",
            "An environment begins with lines such as channels: and dependencies:",
        )
    if is_conda_lock(file) or root.get("package") is not None:
        return reader.lock(root)
    return reader.environment(root)


def is_conda_text(text: str) -> bool:
    """Return whether a text is that of a file of conda, and not of requirements for pip."""
    return bool(_KEY.search(text)) or is_explicit(text)


def is_explicit(text: str) -> bool:
    """Return whether a text is a list of the addresses of packages, as conda list --explicit."""
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "") == EXPLICIT


@dataclass
class _Reader:
    """Reads one file."""

    file: str
    lines: list[str]
    resolve: Resolve

    def refused(self, number: int, reason: str, next_step: str) -> RequirementRefused:
        """Return the refusal of a line."""
        text = self.lines[number - 1].strip() if 0 < number <= len(self.lines) else "…"
        return RequirementRefused(self.file, number, text, reason, next_step)

    def environment(self, root: YamlNode) -> CondaFile:
        """Return an environment.yml."""
        for number, line in enumerate(self.lines, 1):
            if _SELECTOR.match(line):
                raise self.refused(
                    number,
                    "selectors after # are comments for conda, which would install the package on "
                    "every machine",
                    "Remove the selector. Nodes are Linux: leave out what they do not need.",
                )
        known = {"name", "channels", "dependencies", "variables"}
        for key, node in (root.mapping or {}).items():
            if key == "prefix":
                raise self.refused(
                    node.line,
                    "it names a folder of your machine, and a node chooses its own",
                    "Remove the line.",
                )
            if key not in known:
                raise self.refused(
                    node.line,
                    f"{key[:50]!r} is no key of an environment",
                    f"Known are: {', '.join(sorted(known))}.",
                )
        channels, has_default = self._channels(root.get("channels"))
        packages, pip = self._packages(root.get("dependencies"))
        if not packages:
            raise self.refused(
                root.line, "it names no packages", "Add dependencies, such as - python=3.12"
            )
        for spec in packages:
            channel = spec.partition("::")[0] if "::" in spec else ""
            if channel and channel not in channels:
                channels.append(channel)
        environment = CondaEnvironment(
            tuple(channels), tuple(packages), variables=self._variables(root.get("variables"))
        )
        return CondaFile(environment, tuple(pip), has_default)

    def _channels(self, node: YamlNode | None) -> tuple[list[str], bool]:
        names = [] if node is None or node.is_null else node.items
        if names is None:
            raise self.refused(
                node.line if node else 1, "channels is no list", "Write a line - conda-forge below."
            )
        channels: list[str] = []
        for item in names:
            if item.text is None:
                raise self.refused(item.line, "a channel is a text", "Write - conda-forge")
            if item.text == "nodefaults":
                continue
            address = self._channel(item.line, item.text)
            if address not in channels:
                channels.append(address)
        if channels:
            return channels, False
        return [self._channel(1, "")], True

    def _channel(self, number: int, name: str) -> str:
        """Return the address of a channel, of the default one for an empty name."""
        if "@" in name or "${" in name:
            raise self.refused(
                number,
                "accounts of channels are not supported",
                "Ask an administrator for a channel without an account.",
            )
        is_address = name.startswith(("https://", "http://"))
        if name and not is_address and not _CHANNEL_NAME.fullmatch(name):
            raise self.refused(
                number,
                "it is neither the name nor the address of a channel",
                "For example: conda-forge",
            )
        address = self.resolve(name)
        if address is None:
            raise self.refused(
                number,
                f"{name or 'a channel'} is not among the channels that an administrator allows",
                "Name another channel, or ask an administrator to add it to "
                "SLIPWAY_CONDA_CHANNELS.",
            )
        return address

    def _packages(self, node: YamlNode | None) -> tuple[list[str], list[tuple[int, str]]]:
        items = node.items if node is not None else []
        if items is None:
            assert node is not None  # noqa: S101  (an absent list is empty)
            raise self.refused(
                node.line, "dependencies is no list", "Write a line - python=3.12 below."
            )
        if len(items) > MAX_PACKAGES:
            raise self.refused(
                items[MAX_PACKAGES].line,
                f"there are more than {MAX_PACKAGES} packages",
                "Remove packages that others already depend on.",
            )
        packages: list[str] = []
        pip: list[tuple[int, str]] = []
        for item in items:
            if item.text is not None:
                packages.append(self._spec(item.line, item.text))
            elif item.mapping and [*item.mapping] == ["pip"]:
                pip += self._pip(item.mapping["pip"])
            else:
                raise self.refused(
                    item.line,
                    "it is neither a package nor the list pip:",
                    "Selectors such as sel(linux): are not read; write the package itself.",
                )
        return packages, pip

    def _spec(self, number: int, text: str) -> str:
        match = SPEC.fullmatch(text.strip())
        if match is None:
            if "[" in text:
                reason, step = "the form with [ ] is not read", "Write NAME VERSION BUILD instead."
            elif "/" in text or text.endswith((".conda", ".tar.bz2")):
                reason = "it is the address or file of one package"
                step = "Put the package into a channel, or use an @EXPLICIT file."
            else:
                reason, step = "it is not NAME, NAME VERSION or NAME=VERSION=BUILD", _EXAMPLE
            raise self.refused(number, reason, step)
        name, rest = match["name"].lower(), re.sub(r"\s+", " ", match["rest"]).rstrip()
        channel = f"{self._channel(number, match['channel'])}::" if match["channel"] else ""
        return f"{channel}{name}{rest}"

    def _pip(self, node: YamlNode) -> list[tuple[int, str]]:
        items = [] if node.is_null else node.items
        if items is None or not all(item.text is not None for item in items):
            raise self.refused(
                node.line, "pip: is no list of requirements", "Write a line - PACKAGE below."
            )
        return [(item.line, item.text or "") for item in items]

    def _variables(self, node: YamlNode | None) -> dict[str, str]:
        if node is None or node.is_null:
            return {}
        if node.mapping is None or len(node.mapping) > MAX_VARIABLES:
            raise self.refused(
                node.line,
                f"variables is no mapping of at most {MAX_VARIABLES} names to values",
                "Write a line NAME: value below.",
            )
        variables = {}
        for name, value in node.mapping.items():
            if not isinstance(value.content, str):
                raise self.refused(value.line, "the value of a variable is a text", "Quote it.")
            variables[name] = value.content
            if reason := check_variables({name: value.content}):
                raise self.refused(value.line, reason, "Rename or remove it.")
        return variables

    def explicit(self) -> CondaFile:
        """Return a list of addresses, of one platform, or in sections that name theirs."""
        sections: dict[str, list[LockedArchive]] = {}
        pip: list[tuple[int, str]] = []
        platform = ""
        for number, line in enumerate(self.lines, 1):
            text = line.strip()
            if text.startswith(PIP_COMMENT):
                pip.append((number, text.removeprefix(PIP_COMMENT).strip()))
            elif text.startswith(PLATFORM_COMMENT):
                platform = text.removeprefix(PLATFORM_COMMENT).split(" ")[0]
            elif text and not text.startswith("#") and text != EXPLICIT:
                sections.setdefault(platform, []).append(self._archive(number, text))
        if not sections:
            raise self.refused(1, "it names no packages", "List them: conda list --explicit")
        if len(sections) == 1:
            (archives,) = sections.values()
            platforms = {archive.subdir for archive in archives} - {"noarch"} or {*PLATFORMS}
            sections = dict.fromkeys(platforms, archives)
        return CondaFile(self._locked(sections, 1), tuple(pip))

    def _archive(self, number: int, text: str) -> LockedArchive:
        try:
            archive = archive_of(text)
        except ValueError as error:
            step = (
                "Make the list with digests: conda list --explicit --sha256"
                if "sha256" in str(error)
                else "Lock again, and submit what that writes."
            )
            raise self.refused(number, str(error), step) from error
        channel = self._channel(number, archive.channel)
        url = f"{channel}/{archive.subdir}/{archive.file_name}"
        return LockedArchive(url, archive.sha256)

    def _locked(self, archives: Mapping[str, list[LockedArchive]], number: int) -> CondaEnvironment:
        usable = {name: archives[name] for name in PLATFORMS if archives.get(name)}
        if not usable:
            raise self.refused(
                number,
                f"it locks packages for {', '.join(sorted(archives)) or 'no platform'} alone, and "
                f"nodes are {' or '.join(PLATFORMS)}",
                f"Lock again for a node: conda-lock -p {PLATFORMS[0]}",
            )
        channels = dict.fromkeys(archive.channel for items in usable.values() for archive in items)
        exact = {
            name: tuple(sorted(dict.fromkeys(items), key=lambda item: item.url))
            for name, items in usable.items()
        }
        return CondaEnvironment(tuple(sorted(channels)), archives=exact)

    def lock(self, root: YamlNode) -> CondaFile:
        """Return a conda-lock.yml of version 1."""
        version = root.text_of("version")
        if version != "1":
            raise self.refused(
                root.line,
                f"it has version {version[:20] or 'none'} of the format, and only 1 is read",
                "Lock again with conda-lock 2 or later.",
            )
        node = root.get("package")
        items = node.items if node is not None else None
        if not items or len(items) > MAX_PACKAGES * len(PLATFORMS) * 2:
            raise self.refused(root.line, "it has no list of packages, or too many", "Lock again.")
        archives: dict[str, list[LockedArchive]] = {}
        pip: dict[tuple[str, str], dict[str, int]] = {}
        for item in items:
            platform, manager = item.text_of("platform"), item.text_of("manager")
            if item.text_of("category") not in ("", "main") or item.text_of("optional") == "true":
                continue
            archives.setdefault(platform, [])
            if platform not in PLATFORMS:
                continue
            hashes = item.get("hash")
            digest = hashes.text_of("sha256") if hashes is not None else ""
            if manager == "conda":
                url = item.text_of("url")
                archives[platform].append(self._archive(item.line, f"{url}#sha256:{digest}"))
            elif manager == "pip":
                pin = f"{item.text_of('name')}=={item.text_of('version')}"
                pip.setdefault((pin, digest), {})[platform] = item.line
            else:
                raise self.refused(item.line, "its manager is not conda or pip", "Lock again.")
        environment = self._locked(archives, root.line)
        return CondaFile(environment, tuple(_pip_lines(pip, [*environment.archives])))


def _pip_lines(
    pip: Mapping[tuple[str, str], Mapping[str, int]], platforms: list[str]
) -> list[tuple[int, str]]:
    """Return the packages for pip as requirements, with a marker where not all platforms have it.

    Of hashes, those of both processors are allowed: each has its own wheel.
    """
    versions: dict[str, dict[str, int]] = {}
    hashes: dict[str, set[str]] = {}
    for (pin, digest), lines in pip.items():
        versions.setdefault(pin, {}).update(lines)
        hashes.setdefault(pin, set()).add(digest)
    result = []
    for pin, lines in versions.items():
        marker = ""
        if len(lines) < len(platforms):
            machine = "x86_64" if "linux-64" in lines else "aarch64"
            marker = f" ; platform_machine == '{machine}'"
        digests = "".join(f" --hash=sha256:{digest}" for digest in sorted(hashes[pin]) if digest)
        result.append((min(lines.values()), f"{pin}{marker}{digests}"))
    return result


_EXAMPLE: Final = "For example: - numpy=2.1"
