"""Installation with uv instead of pip, following the machine's pip settings.

uv installs what pip installs, several packages at once and from its unpacked cache. It takes
seconds where pip needs a minute for torch, MLflow and their dependencies. A pip configuration (a
mirror, a folder of wheels, constraints, a certificate) applies to uv as well. A setting without an
equivalent in uv leaves the work to pip. This module uses only the standard library, because
`scripts/setup` runs it before anything else is installed.
"""

import ast
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LINE = re.compile(r"(global|install|:env:)\.([a-z-]+)=(.*)")
# pip's settings for output, retries and caches, which do not affect what is installed from where.
_OF_NO_CONSEQUENCE: Final = frozenset(
    {
        *("cache-dir", "compile", "disable-pip-version-check", "log", "no-cache-dir", "no-color"),
        *("no-compile", "no-input", "no-python-version-warning", "no-warn-script-location"),
        *("default-timeout", "progress-bar", "quiet", "require-virtualenv", "retries"),
        *("root-user-action", "timeout", "verbose"),
    }
)
_ONCE: Final = {"index-url": "--index-url", "cert": "--cert"}
_MANY: Final = {
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
}
_NO_PLACES: Final = frozenset({"trusted-host"})
_YES: Final = frozenset({"1", "true", "yes", "on"})


class RequiresPip(Exception):
    """A setting that requires pip. The message is the end of a sentence."""


def settings_of_pip(listed: str) -> dict[str, str]:
    """Parse the output of `pip config list` into options of `pip install`.

    Settings of `install` override those of every command, and the environment overrides both, as
    with pip. Raises OnlyForPip for any other line.
    """
    values: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            # Sections of other commands (freeze, download …) do not affect an installation.
            if re.match(r"[a-z]+\.[a-z-]+=", line) or not line.strip():
                continue
            raise RequiresPip(f"pip's settings have a line {line.strip()[:100]!r}")
        try:
            value = ast.literal_eval(match[3])
        except (ValueError, SyntaxError) as error:
            raise _unknown(match[2]) from error
        values[match[1]][match[2]] = str(value)
    return values["global"] | values["install"] | values[":env:"]


def arguments_of_uv(settings: Mapping[str, str], *, locked: bool = False) -> list[str]:
    """Options of `uv pip install` that say the same as these settings. Raises OnlyForPip.

    What is `locked` has met the constraints, and uv accepts none beside hashes.
    """
    # pip chooses the best version of all indexes.
    arguments = ["--index-strategy", "unsafe-best-match"]
    for name, value in sorted(settings.items()):
        values = [item for item in value.split() if not _is_missing(item)]
        if name == "constraint" and locked:
            continue
        if name in _MANY:
            arguments += [word for item in values for word in (_MANY[name], item)]
        elif name in _ONCE and len(values) == 1:
            arguments += [_ONCE[name], values[0]]
        elif name == "no-index":
            arguments += ["--no-index"] if value.lower() in _YES else []
        elif name not in _OF_NO_CONSEQUENCE:
            raise _unknown(name)
    return arguments


def local_paths(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Files and folders that these settings name: a build has to read them."""
    values = [
        value
        for name in (*_ONCE, *_MANY)
        if name not in _NO_PLACES
        for value in settings.get(name, "").split()
    ]
    places = (_local_path(value) for value in values)
    return tuple(dict.fromkeys(place for place in places if place is not None))


def _local_path(value: str) -> str | None:
    parts = urlsplit(value)
    path = unquote(parts.path) if parts.scheme == "file" else value
    return path if path.startswith("/") and path != "/" else None


def _unknown(name: str) -> RequiresPip:
    return RequiresPip(f"pip has the option {name}, which uv does not support")


def _is_missing(value: str) -> bool:
    """Return whether a file URL names a missing folder, which pip ignores but uv does not."""
    place = urlsplit(value)
    return place.scheme == "file" and not Path(unquote(place.path)).exists()


def uv_of(python: str) -> Path | None:
    """The uv that was installed beside this interpreter, if one was."""
    path = Path(python).parent / "uv"
    return path if os.access(path, os.X_OK) else None


def uv_pip(uv: Path, command: str, python: str, cache: Path | None = None) -> list[str]:
    """The beginning of a command line: uv, aimed at an interpreter, without settings of its own."""
    kept = ["--cache-dir", str(cache)] if cache else []
    return [
        *(str(uv), "pip", command, "--python", python, "--no-config", "--no-python-downloads"),
        *("--no-progress", "--color", "never"),
        *kept,
    ]
