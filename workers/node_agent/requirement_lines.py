"""Requirements of an environment as the node gives them to uv and pip."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from slipway.requirement_files.lines import (
    INDEXES,
    LineKind,
    RequirementLine,
    RequirementRefused,
    parse_canonical,
)
from slipway.requirement_files.local_archives import LocalArchive
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError

_SETTINGS: Final = {
    LineKind.INDEX: "index-url",
    LineKind.EXTRA_INDEX: "extra-index-url",
    LineKind.FIND_LINKS: "find-links",
}
_SECRET = re.compile(r"\$\{([A-Z0-9_]+)\}")
# Programs do not agree on how a netrc file quotes other characters.
_IN_NETRC = re.compile(r"[!$-&(-\[\]-~]+")


@dataclass(frozen=True)
class NodeRequirements:
    """Requirements without the lines that say where packages come from.

    `text` are packages and options of them, one a line. `constraints` are versions that packages
    must have if they are installed. `indexes` has the options of pip's configuration that the
    requirements set, which the portal has checked against the administrator's list. `only_for_pip`
    is the reason why uv cannot install them, if there is one, and `from_source` tells that some
    package must not be a wheel. `accounts` are the name and password of indexes, by host.
    `archives` are wheels and source archives that the requirements name by their digests, and not
    part of the text until they are somewhere.
    """

    text: str
    constraints: str = ""
    indexes: Mapping[str, str] = field(default_factory=dict)
    only_for_pip: str = ""
    from_source: bool = False
    accounts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    archives: tuple[LocalArchive, ...] = ()

    def archive_places(self) -> dict[str, LocalArchive]:
        """Return the archives by the paths that they have in a folder.

        Those without a name of a package are in folders that packages are installed from.
        """
        places: dict[str, LocalArchive] = {}
        for archive in self.archives:
            folder = archive.sha256 if archive.name else "links"
            while f"{folder}/{archive.file_name}" in places:
                folder += "-more"
            places[f"{folder}/{archive.file_name}"] = archive
        return places

    def with_archives_in(self, folder: Path) -> "NodeRequirements":
        """Return the requirements that install the archives from where they are in a folder."""
        lines, links = [], dict[str, None]()
        for place, archive in self.archive_places().items():
            address = (folder / place).as_uri()
            if archive.name:
                marker = f" ; {archive.marker}" if archive.marker else ""
                name = f"{archive.name}{archive.extras}"
                lines.append(f"{name} @ {address}#sha256={archive.sha256}{marker}\n")
            else:
                links[address.rpartition("/")[0]] = None
        known = [self.indexes["find-links"]] if "find-links" in self.indexes else []
        own = {"find-links": " ".join([*known, *links])} if links else {}
        return replace(
            self,
            text="".join([self.text.lstrip("\n"), *lines]) or "\n",
            indexes={**self.indexes, **own},
        )

    @property
    def netrc(self) -> str:
        """The accounts as a netrc file, so that no command line and no log has a password."""
        return "".join(
            f"machine {host} login {name} password {password}\n"
            for host, (name, password) in self.accounts.items()
        )

    def file(self, *, has_indexes: bool) -> str:
        """Return the requirements file. Constraints are in `constraints.txt` beside it.

        Indexes have their accounts, because containers have no netrc file.
        """
        lines = ["-c constraints.txt\n"] if self.constraints else []
        if has_indexes:
            words = iter(self.arguments_of_pip())
            lines += [
                f"{name} {self._with_account(address)}\n"
                for name, address in zip(words, words, strict=True)
            ]
        return "".join([*lines, self.text])

    def _with_account(self, address: str) -> str:
        name, password = self.accounts.get(urlsplit(address).hostname or "", ("", ""))
        account = f"//{quote(name, safe='')}:{quote(password, safe='')}@" if name else "//"
        return address.replace("//", account, 1)

    def with_indexes(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return pip's settings with the indexes of the requirements, as pip combines the two."""
        combined = dict(settings)
        for name, value in self.indexes.items():
            before = "" if name == "index-url" else combined.get(name, "")
            combined[name] = f"{before} {value}".strip()
        return combined

    def arguments_of_pip(self) -> list[str]:
        """Return the options of pip for these indexes. They complete its configuration."""
        return [
            word
            for name, value in self.indexes.items()
            for address in value.split()
            for word in (f"--{name}", address)
        ]


def checked_requirements(text: str, secrets: Mapping[str, str] | None = None) -> NodeRequirements:
    """Return the requirements, parsed as the portal parses them. Raises StartError if invalid.

    `secrets` are those of the project that accounts of indexes name.
    """
    try:
        lines = parse_canonical(text, has_archives=True)
    except RequirementRefused as error:
        raise StartError(f"{error} {error.next_step}", ReasonCode.ENVIRONMENT_FAILED) from error
    constraints = [line.value for line in lines if line.kind == LineKind.CONSTRAINT]
    archives = [line.archive for line in lines if line.sha256 and line.archive is not None]
    apart = (*INDEXES, LineKind.CONSTRAINT, LineKind.ARCHIVE, LineKind.LOCAL_LINKS)
    others = [line for line in lines if line.kind not in apart]
    return NodeRequirements(
        text="".join(f"{line.text}\n" for line in others) or "\n",
        constraints="".join(f"{line}\n" for line in constraints),
        indexes=_indexes(lines),
        only_for_pip="the requirements have --pre, which uv does not read from a file"
        if any(line.kind == LineKind.PRE for line in lines)
        else "",
        from_source=any(
            line.kind == LineKind.NO_BINARY and line.value != ":none:" for line in lines
        ),
        accounts=_accounts(lines, secrets or {}),
        archives=tuple(archives),
    )


def _accounts(
    lines: list[RequirementLine], secrets: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    accounts: dict[str, tuple[str, str]] = {}
    for line in lines:
        if line.account:
            for name in line.secrets:
                _check_secret(name, secrets)
            user, _, password = _SECRET.sub(
                lambda match: secrets[match[1]].strip(), line.account
            ).partition(":")
            accounts[urlsplit(line.address).hostname or ""] = (user, password)
    return accounts


def _check_secret(name: str, secrets: Mapping[str, str]) -> None:
    if name not in secrets:
        raise StartError(
            f"The environment could not be built: an index of packages needs the secret {name}, "
            "which the project does not have. Add it on the page Secrets, and submit again.",
            ReasonCode.ENVIRONMENT_FAILED,
        )
    if not _IN_NETRC.fullmatch(secrets[name].strip()):
        raise StartError(
            f"The environment could not be built: the secret {name} for an index of packages has "
            "spaces, quotes, #, \\ or letters outside of ASCII. Use a password without them.",
            ReasonCode.ENVIRONMENT_FAILED,
        )


def _indexes(lines: list[RequirementLine]) -> dict[str, str]:
    indexes: dict[str, str] = {}
    for line in lines:
        if line.kind == LineKind.INDEX:
            indexes["index-url"] = line.address
        elif line.kind in INDEXES:
            name = _SETTINGS[line.kind]
            indexes[name] = f"{indexes.get(name, '')} {line.address}".strip()
    return indexes
