"""Files of conda written from stored packages: they can be submitted again."""

import json
import re
from typing import Final

from slipway.requirement_files.conda_packages import EXPLICIT, CondaEnvironment

PIP_COMMENT: Final = "# pip "
PLATFORM_COMMENT: Final = "# platform: "
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=<>!~ ,*+:/|-]*")


def conda_document(environment: CondaEnvironment, requirements: str) -> str:
    """Return an environment.yml, or a list of addresses for exact packages.

    `requirements` are the lines for pip. A list for several platforms has a section for each.
    """
    if environment.archives:
        return _explicit(environment, requirements)
    lines = ["channels:"]
    lines += [f"  - {channel}" for channel in environment.channels]
    lines.append("dependencies:")
    lines += [f"  - {_scalar(spec)}" for spec in environment.packages]
    if requirements:
        lines.append("  - pip:")
        lines += [f"      - {_scalar(line)}" for line in requirements.splitlines()]
    if environment.variables:
        lines.append("variables:")
        lines += [f"  {name}: {json.dumps(it)}" for name, it in environment.variables.items()]
    return "\n".join(lines)


def frozen_conda(locked: str, requirements: str) -> str:
    """Return the exact packages of a build as a list that conda and Slipway read.

    Exact packages of pip are comments, which conda ignores. The lines of `requirements` stand for
    them where the build has no exact versions of them, such as after a build from source.
    """
    lines = locked.splitlines()
    pip = [line for line in lines if line and "://" not in line and line[0] not in "#@"]
    lines = [line for line in lines if line not in pip]
    for line in requirements.splitlines():
        is_index = line.startswith("-") and not line.startswith("--constraint")
        if is_index or not (pip or line.startswith("-")):
            lines.append(f"{PIP_COMMENT}{line}")
    return "\n".join([*lines, *(f"{PIP_COMMENT}{line}" for line in pip)])


def _explicit(environment: CondaEnvironment, requirements: str) -> str:
    # One list is enough for packages of any platform.
    sections = environment.archives
    if len(set(sections.values())) == 1:
        sections = dict([*sections.items()][:1])
    lines: list[str] = []
    for platform, archives in sections.items():
        if len(sections) > 1:
            lines.append(f"{PLATFORM_COMMENT}{platform}")
        if EXPLICIT not in lines:
            lines.append(EXPLICIT)
        lines += [archive.line for archive in archives]
    lines += [f"{PIP_COMMENT}{line}" for line in requirements.splitlines()]
    return "\n".join(lines)


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
