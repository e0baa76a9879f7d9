"""Environments of conda: the channels that an administrator allows, and their digest."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from django.conf import settings
from packaging.utils import canonicalize_name

from portal.accounts.models import Project, User
from portal.compute.models import Environment
from portal.compute.services.environments import (
    add_environment,
    check_secrets,
    name_of,
    normalised,
    package_lines,
)
from slipway.requirement_files.conda import CondaFile, parse_conda
from slipway.requirement_files.conda_packages import CondaEnvironment

_ALIAS: Final = "https://conda.anaconda.org"


@dataclass(frozen=True)
class CondaSource:
    """Packages of conda, and the canonical `requirements` that pip installs beside them."""

    environment: CondaEnvironment
    requirements: str = ""

    @property
    def digest(self) -> str:
        """The hex SHA-256 that names the environment."""
        content = json.dumps(["slipway-conda-1", self.environment.text, self.requirements])
        return hashlib.sha256(content.encode()).hexdigest()


def allowed_channels() -> dict[str, str]:
    """Return the addresses of the channels that may be used, by their names.

    An entry of the setting is a name, an address, or `NAME=ADDRESS` for a mirror.
    """
    channels = {}
    for entry in settings.SLIPWAY_CONDA_CHANNELS.split():
        name, _, address = entry.partition("=")
        if not address:
            address = name if "://" in name else f"{_ALIAS}/{name}"
        channels[name.rstrip("/")] = address.rstrip("/")
    return channels


def channel_address(name: str) -> str | None:
    """Return the address of a channel for its name or address, None if it is not allowed.

    An empty name stands for the first one that is allowed. What is below an allowed address is
    allowed, too, and the public address of a channel stands for its mirror.
    """
    channels = allowed_channels()
    if not name:
        return next(iter(channels.values()), None)
    plain = name.rstrip("/")
    if plain in channels:
        return channels[plain]
    if plain.startswith(f"{_ALIAS}/") and (known := channels.get(plain.removeprefix(f"{_ALIAS}/"))):
        return known
    is_unclear = "//" in plain.partition("://")[2] or "/.." in plain or set("%?#@") & {*plain}
    if "://" not in plain or is_unclear:
        return None
    allowed = channels.values()
    is_below = any(plain == known or plain.startswith(f"{known}/") for known in allowed)
    return plain if is_below else None


def conda_file(text: str, file: str) -> CondaFile:
    """Return the content of a file of conda. Raises RequirementRefused."""
    return parse_conda(text, file=file, resolve=channel_address)


def pip_text(content: CondaFile) -> str:
    """Return the requirements for pip, each in the line that it has in its file."""
    lines = [""] * max((number for number, _ in content.pip), default=0)
    for number, line in content.pip:
        # Flow style has several in one line.
        before = lines[number - 1]
        lines[number - 1] = f"{before}\n{line}" if before else line
    return "\n".join(lines)


def conda_source_of(environment: Environment) -> CondaSource | None:
    """Return the packages of conda of an environment, None if it has none."""
    if not environment.conda:
        return None
    packages = CondaEnvironment.from_text(environment.conda)
    return CondaSource(packages, environment.requirements)


def conda_with(environment: Environment, needs: Iterable[str]) -> CondaSource:
    """Return the packages of an environment of conda, with `needs` by pip unless it names them."""
    source = conda_source_of(environment)
    assert source is not None  # noqa: S101  (the caller checked it)
    lines = package_lines(source.requirements)
    names = {name_of(line) for line in lines} | {*map(canonicalize_name, source.environment.names)}
    missing = [need for need in needs if name_of(need) not in names]
    text = "\n".join([*source.requirements.splitlines(), *missing])
    return replace(source, requirements=normalised(text, has_archives=True))


def use_conda(*, project: Project, by: User, source: CondaSource) -> Environment:
    """Return the environment of these packages, now used by the project too.

    Raises InvalidInput for requirements that name an unknown secret.
    """
    check_secrets(project, source.requirements)
    content = {
        "conda": source.environment.text,
        "requirements": source.requirements,
        "python": source.environment.python,
    }
    return add_environment(project, by, source.digest, content)
