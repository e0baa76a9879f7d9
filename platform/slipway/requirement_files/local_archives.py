"""Wheels and source archives that lines of requirements name by a path of the submitted folder.

Canonical requirements name such an archive by its file name and its digest instead:
`acme @ file:acme-1.0-py3-none-any.whl#sha256=…`, and `--find-links file:…` for one that packages
may be installed from. No path of the folder is in them, so that the same bytes are the same
environment.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
EXTRAS: Final = r"(?:\s*\[[A-Za-z0-9._,\s-]*\])?"
_VALUE: Final = r"(?:\"[A-Za-z0-9._ -]*\"|'[A-Za-z0-9._ -]*')"
MARKER: Final = (
    r"\(*\s*[a-z_]+\s*(?:===?|!=|<=?|>=?|~=|\s(?:not\s+)?in\s)\s*"
    rf"{_VALUE}\s*\)*"
)
MARKERS: Final = rf"{MARKER}(?:\s*(?:and|or)\s*{MARKER})*"
SOURCE_ARCHIVES: Final = (".tar.gz", ".zip", ".tar.bz2", ".tgz")
ARCHIVES: Final = (".whl", *SOURCE_ARCHIVES)
SCHEME: Final = "file:"
_HASH: Final = r"\s+--hash[= ]([a-z0-9]+:[0-9a-f]+)"
_LINE = re.compile(
    rf"(?:(?P<name>{NAME})(?P<named_extras>{EXTRAS})\s*@\s*)?"
    r"(?P<path>[^\s;\[\]#]+)(?P<extras>\[[A-Za-z0-9._,\s-]*\])?(?:#(?P<fragment>[^\s;]*))?"
    rf"(?:\s*;\s*(?P<marker>{MARKERS}))?(?P<hashes>(?:{_HASH})*)"
)
# Safe in an address, in a folder of the node and on a command line.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LocalArchive:
    """An archive as a line names it.

    `name` is empty where only the file tells it. `hashes`, such as `sha256:…`, are those of which
    it must have one, empty for any.
    """

    path: str
    name: str = ""
    extras: str = ""
    marker: str = ""
    hashes: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def has_safe_name(self) -> bool:
        """True if the file name has only letters, digits and `. _ + ! -`."""
        return _FILE_NAME.fullmatch(self.file_name) is not None

    @property
    def sha256(self) -> str:
        """The digest, if the line names the archive by it and by its file name alone."""
        is_stored = len(self.hashes) == 1 and self.path == self.file_name and self.has_safe_name
        digest = self.hashes[0].removeprefix("sha256:") if is_stored else ""
        return digest if _SHA256.fullmatch(digest) else ""

    def canonical(self, sha256: str) -> str:
        """Return the line of canonical requirements for an archive with this digest.

        Without a name it is that of an archive which packages may be installed from.
        """
        address = f"{SCHEME}{self.file_name}#sha256={sha256}"
        if not self.name:
            return f"--find-links {address}"
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{self.extras} @ {address}{marker}"


def parse_local(text: str) -> LocalArchive | None:
    """Return the archive that a line names by its path, None if it has another form.

    Raises ValueError with the reason for options of an address that it cannot have.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None or (match["name"] and not match["path"].startswith(SCHEME)):
        return None
    path = match["path"]
    if path.startswith(SCHEME):
        path = unquote(path.removeprefix(SCHEME))
    if not path.lower().endswith(ARCHIVES):
        return None
    hashes = re.findall(_HASH, match["hashes"])
    name = match["name"] or ""
    for option in filter(None, (match["fragment"] or "").split("&")):
        key, _, value = option.partition("=")
        if key == "egg":
            name = name or value
        elif key == "sha256" and _SHA256.fullmatch(value):
            hashes.append(f"sha256:{value}")
        else:
            raise ValueError(f"the option #{key[:50]} of an address is not supported")
    extras = re.sub(r"\s", "", match["named_extras"] or match["extras"] or "")
    return LocalArchive(path, name, extras, match["marker"] or "", tuple(sorted(set(hashes))))
