"""Requirements of an environment as the node gives them to uv and pip."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slipway.requirement_files.lines import (
    INDEXES,
    LineKind,
    RequirementLine,
    RequirementRefused,
    parse_canonical,
)
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError

_SETTINGS: Final = {
    LineKind.INDEX: "index-url",
    LineKind.EXTRA_INDEX: "extra-index-url",
    LineKind.FIND_LINKS: "find-links",
}


@dataclass(frozen=True)
class NodeRequirements:
    """Requirements without the lines that say where packages come from.

    `text` are packages and options of them, one a line. `constraints` are versions that packages
    must have if they are installed. `indexes` has the options of pip's configuration that the
    requirements set, which the portal has checked against the administrator's list. `only_for_pip`
    is the reason why uv cannot install them, if there is one, and `from_source` tells that some
    package must not be a wheel.
    """

    text: str
    constraints: str = ""
    indexes: Mapping[str, str] = field(default_factory=dict)
    only_for_pip: str = ""
    from_source: bool = False

    def file(self, *, has_indexes: bool) -> str:
        """Return the requirements file. Constraints are in `constraints.txt` beside it."""
        lines = ["-c constraints.txt\n"] if self.constraints else []
        if has_indexes:
            words = iter(self.arguments_of_pip())
            lines += [f"{name} {address}\n" for name, address in zip(words, words, strict=True)]
        return "".join([*lines, self.text])

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


def checked_requirements(text: str) -> NodeRequirements:
    """Return the requirements, parsed as the portal parses them. Raises StartError if invalid."""
    try:
        lines = parse_canonical(text)
    except RequirementRefused as error:
        raise StartError(f"{error} {error.next_step}", ReasonCode.ENVIRONMENT_FAILED) from error
    constraints = [line.value for line in lines if line.kind == LineKind.CONSTRAINT]
    others = [line for line in lines if line.kind not in (*INDEXES, LineKind.CONSTRAINT)]
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
    )


def _indexes(lines: list[RequirementLine]) -> dict[str, str]:
    indexes: dict[str, str] = {}
    for line in lines:
        if line.kind == LineKind.INDEX:
            indexes["index-url"] = line.value
        elif line.kind in INDEXES:
            name = _SETTINGS[line.kind]
            indexes[name] = f"{indexes.get(name, '')} {line.value}".strip()
    return indexes
