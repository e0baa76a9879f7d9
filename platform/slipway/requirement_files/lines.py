"""Lines of a requirements file: their file, number and kind, and the reason for a refusal."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from slipway.requirement_files.local_archives import (
    ARCHIVES,
    EXTRAS,
    MARKERS,
    NAME,
    SCHEME,
    LocalArchive,
    parse_local,
)
from slipway.schemas.base import forbidden_character

MAX_CHARACTERS: Final = 1024 * 1024
# Long lines contain many hashes, never a single long name.
MAX_LINE: Final = 40_000
_VERSION: Final = r"(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+"
_PACKAGE = re.compile(
    rf"{NAME}{EXTRAS}"
    rf"(?:\s*\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\)?|\s*@\s*(?:git\+)?https://[^\s;]+)?"
    rf"(?:\s*;\s*{MARKERS})?"
    r"(?:\s+--hash[= ][a-z0-9]+:[0-9a-f]+)*"
)
_NAMED_ADDRESS = re.compile(rf"({NAME}){EXTRAS}\s*@\s*(\S+)")
_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z-]*)(?:\s*=\s*|\s+|$)(.*)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_WHEEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*)-[^-/]+(?:-[^-/]+)?-[^-/]+-[^-/]+-[^-/]+\.whl")
_EGG = re.compile(rf"(?:^|&)egg=({NAME}{EXTRAS})(?:&|$)")
_PASSWORD = re.compile(r"//[^/@\s]+@")
# The account for an index: its password, and perhaps its name, are secrets of the project.
_VARIABLE_NAME: Final = r"\$\{([A-Z][A-Z0-9_]{0,63})\}"
_ACCOUNT = re.compile(rf"(?<=//)(?:[A-Za-z0-9._~-]+|{_VARIABLE_NAME}):{_VARIABLE_NAME}@")
_INDEX_WITH_ACCOUNT = re.compile(
    r"(?:-i|-f|--(?:index-url|pypi-url|extra-index-url|find-links))(?:\s*=\s*|\s+)"
    rf"https?:{_ACCOUNT.pattern.replace('(?<=//)', '//')}[^$\s]+"
)
_CHOICES = re.compile(rf":all:|:none:|{NAME}(?:,{NAME})*")


class LineKind(StrEnum):
    """Meaning of a line. The value of an option is its name in canonical requirements."""

    PACKAGE = "package"
    FILE = "-r"
    CONSTRAINTS = "-c"
    # Canonical requirements contain constraints themselves instead of the file that has them.
    CONSTRAINT = "--constraint"
    PROJECT = "."
    # A wheel or a source archive in the submitted folder.
    ARCHIVE = "archive"
    # A folder of them, or in canonical requirements one of them.
    LOCAL_LINKS = "--find-links "
    INDEX = "--index-url"
    EXTRA_INDEX = "--extra-index-url"
    FIND_LINKS = "--find-links"
    NO_BINARY = "--no-binary"
    ONLY_BINARY = "--only-binary"
    PRE = "--pre"


class _Refuse(Protocol):
    """Makes the refusal of the line that is being parsed."""

    def __call__(self, reason: str, next_step: str) -> "RequirementRefused":
        """Return the refusal."""


INDEXES: Final = frozenset({LineKind.INDEX, LineKind.EXTRA_INDEX, LineKind.FIND_LINKS})
_OPTIONS: Final = {
    "-r": LineKind.FILE,
    "--requirement": LineKind.FILE,
    "-c": LineKind.CONSTRAINTS,
    "--constraint": LineKind.CONSTRAINTS,
    "-i": LineKind.INDEX,
    "--index-url": LineKind.INDEX,
    "--pypi-url": LineKind.INDEX,
    "--extra-index-url": LineKind.EXTRA_INDEX,
    "-f": LineKind.FIND_LINKS,
    "--find-links": LineKind.FIND_LINKS,
    "--no-binary": LineKind.NO_BINARY,
    "--only-binary": LineKind.ONLY_BINARY,
    "--pre": LineKind.PRE,
}
# They change nothing here: hashes are always checked, and wheels always preferred.
_WITHOUT_EFFECT: Final = frozenset({"--require-hashes", "--prefer-binary", "--use-feature"})
_REFUSED: Final = {
    "--trusted-host": (
        "which hosts need no certificate is for the administrator to decide",
        "Ask an administrator to add the host to the pip configuration of the node.",
    ),
    "--no-index": (
        "the node decides where packages come from",
        "Remove the line: an index that --index-url names replaces that of the node.",
    ),
}
_SCHEMES: Final = {
    "http": (
        "http addresses can be changed on the way",
        "Use the https address.",
    ),
    "git+http": (
        "http addresses can be changed on the way",
        "Use the git+https address.",
    ),
    "git+ssh": (
        "a node has no SSH key of yours",
        "Use the git+https address of a public repository.",
    ),
    "git+git": ("the git protocol has no encryption", "Use the git+https address."),
    "ssh": ("a node has no SSH key of yours", "Use the git+https address of a public repository."),
    "file": (
        "a node has no files of your machine",
        (
            "Put it into the submitted folder and name it by its path, such as -e ./acme or "
            "NAME @ file:./wheels/NAME-1.0-py3-none-any.whl."
        ),
    ),
}


class RequirementRefused(ValueError):
    """A line that cannot be used: its file and number, the reason and what works instead."""

    def __init__(self, file: str, number: int, text: str, reason: str, next_step: str) -> None:
        self.file = file
        self.number = number
        self.reason = reason
        self.next_step = next_step
        text = _PASSWORD.sub("//…@", text)
        shown = text if len(text) <= 100 else f"{text[:99]}…"
        super().__init__(f"Line {number} of {file}, {shown!r}, is not accepted: {reason}.")


@dataclass(frozen=True)
class RequirementLine:
    """A line with its continuations, without its comment.

    `value` is the package with versions, extras, marker and hashes, the path of a file, the address
    of an index or the value of another option. `archive` is one of the submitted folder.
    """

    file: str
    number: int
    kind: LineKind
    value: str

    @property
    def text(self) -> str:
        """The line in canonical requirements."""
        if self.kind in (LineKind.PACKAGE, LineKind.ARCHIVE):
            return self.value
        return f"{self.kind.value.strip()} {self.value}".rstrip()

    @property
    def archive(self) -> LocalArchive | None:
        """The archive of the submitted folder that the line names, None if it names none."""
        if self.kind not in (LineKind.ARCHIVE, LineKind.LOCAL_LINKS):
            return None
        return parse_local(self.value)

    @property
    def sha256(self) -> str:
        """The digest of the archive, if the line is one of canonical requirements."""
        archive = self.archive
        is_named = archive is not None and (bool(archive.name) == (self.kind == LineKind.ARCHIVE))
        return archive.sha256 if archive is not None and is_named else ""

    @property
    def account(self) -> str:
        """The account of an index, such as `build:${ACME_TOKEN}`, or an empty text."""
        match = _ACCOUNT.search(self.value) if self.kind in INDEXES else None
        return match[0].removesuffix("@") if match else ""

    @property
    def secrets(self) -> list[str]:
        """The names of the project's secrets that the account of an index names."""
        return re.findall(_VARIABLE_NAME, self.account)

    @property
    def address(self) -> str:
        """The address of an index without its account."""
        return _ACCOUNT.sub("", self.value)

    def refused(self, reason: str, next_step: str) -> RequirementRefused:
        """Return the refusal of this line."""
        return RequirementRefused(self.file, self.number, self.text, reason, next_step)


def parse_lines(
    text: str, *, file: str = "the requirements", number: int = 1
) -> list[RequirementLine]:
    """Return the lines of a requirements file. Raises RequirementRefused for what pip may not do.

    Files are not opened, and what a line names need not exist. `number` is that of the first line.
    """
    if len(text) > MAX_CHARACTERS:
        raise RequirementRefused(
            *(file, 1, "…", f"the file is longer than {MAX_CHARACTERS >> 20} MiB"),
            "Remove packages that others already depend on.",
        )
    lines = []
    for offset, logical in _logical_lines(text.removeprefix("\ufeff")):
        line = _parse(file, number + offset - 1, logical)
        if line is not None:
            lines.append(line)
    return lines


def parse_canonical(text: str, *, has_archives: bool = False) -> list[RequirementLine]:
    """Return the lines of canonical requirements, which name no files. Raises RequirementRefused.

    `--constraint` is followed by a package there, which the portal read from a file. With
    `has_archives`, lines may name archives of the project by digest.
    """
    lines = []
    for line in parse_lines(text):
        is_package = _PACKAGE.fullmatch(line.value) and re.search("[=<>~]", line.value)
        if line.kind == LineKind.CONSTRAINTS and is_package:
            lines.append(RequirementLine(line.file, line.number, LineKind.CONSTRAINT, line.value))
        elif line.kind in _OF_FILES and not (has_archives and line.sha256):
            raise line.refused(
                "it names a file, and these requirements came without files",
                "Submit it as a requirements file in the folder of the code, or make an "
                "environment of that folder: slipway env create NAME --code FOLDER.",
            )
        else:
            lines.append(line)
    return lines


_OF_FILES: Final = frozenset(
    {
        *(LineKind.FILE, LineKind.CONSTRAINTS, LineKind.PROJECT),
        *(LineKind.ARCHIVE, LineKind.LOCAL_LINKS),
    }
)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined at backslashes, without comments, with the number of the first one."""
    pending, start = "", 0
    numbered = list(enumerate(re.split(r"\r\n|\n|\r", text), start=1))
    for number, raw in numbered:
        start = start or number
        is_comment = raw.lstrip().startswith("#")
        if raw.endswith("\\") and not is_comment and number < len(numbered):
            pending += raw[:-1] + " "
            continue
        line = _COMMENT.sub("", pending + raw).strip()
        if line:
            yield start, line
        pending, start = "", 0


def _parse(file: str, number: int, text: str) -> RequirementLine | None:
    def refused(reason: str, next_step: str) -> RequirementRefused:
        return RequirementRefused(file, number, text, reason, next_step)

    if forbidden_character(text, multiline=True):
        raise refused("it contains a control character", "Remove it.")
    if len(text) > MAX_LINE:
        raise refused(f"it is longer than {MAX_LINE} characters", "Shorten it.")
    if _VARIABLE.search(text) and not _INDEX_WITH_ACCOUNT.fullmatch(text):
        raise refused(
            "variables of your machine do not travel with the code",
            f"Write the value itself. The password of an index is a secret of the project: "
            f"{_EXAMPLE_OF_ACCOUNT}",
        )
    if text.startswith("-"):
        kind, value = _option(text, refused)
        return None if kind is None else RequirementLine(file, number, kind, value)
    return RequirementLine(file, number, *_requirement(text, refused))


def _option(text: str, refused: _Refuse) -> tuple[LineKind | None, str]:
    match = _OPTION.fullmatch(text)
    # `-rbase.txt` is one word for pip, too.
    if match is None or (match[1] not in _OPTIONS and re.match(r"-[rcief]\S", text)):
        match = re.fullmatch(r"(-[rcief])(.+)", text)
    name, value = (match[1], match[2].strip()) if match else (text, "")
    if name in ("-e", "--editable"):
        return _editable(value, refused)
    if name in _WITHOUT_EFFECT:
        return None, ""
    if name in _REFUSED:
        raise refused(*_REFUSED[name])
    kind = _OPTIONS.get(name)
    if kind is None:
        raise refused(
            f"the option {name} is not supported", "Remove it, or use a released wheel instead."
        )
    if kind == LineKind.PRE:
        if value:
            raise refused("--pre takes no value", "Name the package in a line of its own.")
        return kind, ""
    if not value or (" " in value and not _PACKAGE.fullmatch(value)):
        raise refused(f"{name} needs one value", f"For example: {_EXAMPLES[kind]}")
    if kind in INDEXES:
        kind = _kind_of_index(kind, value, refused)
    elif kind in (LineKind.NO_BINARY, LineKind.ONLY_BINARY) and not _CHOICES.fullmatch(value):
        raise refused(f"{name} takes names of packages", f"For example: {_EXAMPLES[kind]}")
    elif kind in (LineKind.FILE, LineKind.CONSTRAINTS) and "://" in value:
        raise refused(
            "requirements at an address may change between two builds",
            "Put the file into the submitted folder and name it by its path.",
        )
    return kind, value


_EXAMPLES: Final = {
    LineKind.FILE: "-r base.txt",
    LineKind.CONSTRAINTS: "-c constraints.txt",
    LineKind.INDEX: "--index-url https://packages.example.org/wheels",
    LineKind.EXTRA_INDEX: "--extra-index-url https://packages.example.org/cpu",
    LineKind.FIND_LINKS: "--find-links https://packages.example.org/links.html",
    LineKind.NO_BINARY: "--no-binary numpy",
    LineKind.ONLY_BINARY: "--only-binary :all:",
}


_EXAMPLE_OF_ACCOUNT: Final = (
    "--extra-index-url https://USER:${ACME_TOKEN}@packages.example.org/simple"
)


def _is_of_folder(value: str) -> bool:
    """Return whether `--find-links` names a folder or an archive by a relative path."""
    path = value.removeprefix(SCHEME)
    return "://" not in value and not path.startswith(("/", "~", "-")) and "\\" not in path


def _kind_of_index(kind: LineKind, value: str, refused: _Refuse) -> LineKind:
    """Return the kind of a place of packages. It is a web address without a password of its own.

    `--find-links` may be the path of a folder, too.
    """
    if kind == LineKind.FIND_LINKS and _is_of_folder(value):
        return LineKind.LOCAL_LINKS
    try:
        parts = urlsplit(_ACCOUNT.sub("", value))
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise refused(
            "it is not the address of an index",
            "Use an address that begins with https://.",
        )
    if parts.username is not None or parts.password is not None:
        raise refused(
            "it contains a password, which everybody in the project could read",
            f"Save the password as a secret of the project and name that: {_EXAMPLE_OF_ACCOUNT}",
        )
    return kind


def _editable(value: str, refused: _Refuse) -> tuple[LineKind, str]:
    if "://" in value:
        return _address(value, refused)
    path, bracket, extras = value.partition("[")
    if not path or (bracket and not extras.endswith("]")):
        raise refused("-e needs the path of a project", "For example: -e .")
    return LineKind.PROJECT, value


def _requirement(text: str, refused: _Refuse) -> tuple[LineKind, str]:
    named = _NAMED_ADDRESS.match(text)
    if _PACKAGE.fullmatch(text) and (named is not None or not _is_path(text)):
        return LineKind.PACKAGE, text
    is_local = named is not None and re.match(rf"{SCHEME}(?!/)", named[2], re.IGNORECASE)
    if is_local or (named is None and "://" not in text and _is_path(text)):
        return _path(text, refused)
    if named is not None:
        _check_scheme(named[2], refused)
    elif "://" in text.partition(" ")[0]:
        return _address(text, refused)
    if " --hash" in text and not re.search(r"\s--(?!hash)[a-z]", text):
        raise refused(
            "a hash has the form --hash=sha256: and 64 digits", "Copy it from pip hash FILE."
        )
    if re.search(r"\s--?[a-z]", text):
        raise refused(
            "options for one package other than --hash are not supported",
            "Remove the option, or use a released wheel.",
        )
    if ";" in text:
        raise refused(
            "its marker has an unknown form",
            "Write it as NAME OPERATOR 'VALUE', such as ; python_version < '3.12'",
        )
    raise refused(
        "it is neither a package with versions nor an address or a path",
        "For example: scikit-learn==1.7.0",
    )


def _is_path(text: str) -> bool:
    word = text.partition(";")[0].partition(" ")[0]
    path = word.partition("[")[0]
    return (
        path.startswith((".", "/", "~", SCHEME))
        or "/" in path
        or "\\" in path
        or path.lower().endswith(ARCHIVES)
    )


def _path(text: str, refused: _Refuse) -> tuple[LineKind, str]:
    word = text.partition(" --hash")[0].strip()
    if word.startswith(("/", "~")) or "\\" in word:
        raise refused(
            "a node has no such folder of your machine",
            "Name a file in the submitted folder by its path from there.",
        )
    try:
        archive = parse_local(text)
    except ValueError as error:
        raise refused(str(error), "Write the name in front: NAME @ file:PATH") from error
    if archive is not None:
        return LineKind.ARCHIVE, text
    plain = word.partition(";")[0].partition("[")[0].strip().lower()
    first = re.split(r"[\s#]", plain)[0]
    if "@" in word or first.endswith(ARCHIVES) or plain.endswith(ARCHIVES) or SCHEME in plain:
        raise refused(
            "it is no line for an archive in the submitted folder",
            "For example: ./wheels/acme-1.0-py3-none-any.whl, "
            "or acme[gpu] @ file:./wheels/acme-1.0-py3-none-any.whl ; python_version < '3.13'",
        )
    return LineKind.PROJECT, word


def _check_scheme(address: str, refused: _Refuse) -> None:
    scheme = address.partition(":")[0].lower()
    if scheme in ("https", "git+https"):
        return
    if scheme in _SCHEMES:
        raise refused(*_SCHEMES[scheme])
    if scheme.partition("+")[0] in ("hg", "svn", "bzr"):
        raise refused(
            "nodes have git, and no other version control", "Use a git repository or a wheel."
        )
    raise refused(
        "only https and git+https addresses are supported", "Name a released version instead."
    )


def _address(text: str, refused: _Refuse) -> tuple[LineKind, str]:
    """Return the package of an address without a name, which the address itself must tell."""
    address, semicolon, marker = text.partition(" ;")
    address, space, more = address.partition(" ")
    _check_scheme(address, refused)
    parts = urlsplit(address)
    wheel = _WHEEL.fullmatch(unquote(parts.path.rpartition("/")[2]))
    egg = _EGG.search(parts.fragment)
    name = egg[1] if egg else wheel[1].replace("_", "-") if wheel else ""
    if not name:
        raise refused(
            "the address does not tell the name of the package",
            f"Write the name in front of it: NAME @ {address[:200]}",
        )
    plain = address.partition("#")[0] if egg else address
    value = f"{name} @ {plain}{f' ;{marker}' if semicolon else ''}{space}{more}"
    if not _PACKAGE.fullmatch(value):
        raise refused("the address has an unknown form", f"Write it as: {name} @ https://…")
    return LineKind.PACKAGE, value
