"""Files of conda in the code of a job: their content, and the sentences of the price preview."""

import posixpath
from urllib.parse import urlsplit

from portal.compute.models import EnvironmentVersion
from portal.compute.services.conda_environments import CondaSource, allowed_channels
from portal.compute.services.environments import default_python
from portal.core.errors import InvalidInput
from slipway.requirement_files.conda import is_conda_lock
from slipway.requirement_files.names import CONDA

_SHOWN_CHANNELS = 3


def is_conda(path: str) -> bool:
    """Return whether a file is one of conda, by its name."""
    name = posixpath.basename(path)
    return name in CONDA or is_conda_lock(path) or name.endswith((".yml", ".yaml"))


def about_conda(source: CondaSource, file: str, pip: int) -> str:
    """Return the sentences on the packages of a file, or of the request for an empty name."""
    environment = source.environment
    plural = "" if environment.count == 1 else "s"
    kind = "exact conda package" if environment.archives else "conda package"
    beside = f" and {pip} of pip" if pip else ""
    names = {address: name for name, address in allowed_channels().items()}
    channels = [names.get(address, _host(address)) for address in environment.channels]
    shown = ", ".join(channels[:_SHOWN_CHANNELS])
    if len(channels) > _SHOWN_CHANNELS:
        shown += f" and {len(channels) - _SHOWN_CHANNELS} more"
    python = environment.python
    own = f"Python {python} of conda." if python else "With the Python of conda."
    where = f"from {file}" if file else "of the request"
    return f"{environment.count} {kind}{plural}{beside} {where}, from {shown}. {own}"


def about_python(version: EnvironmentVersion) -> str:
    """Return the sentence on the Python of a named environment, empty for the usual one."""
    python = version.environment.python
    if version.is_conda:
        return f" Python {python} of conda." if python else " With the Python of conda."
    return "" if python == default_python() else f" Python {python} of the environment."


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.netloc}{parts.path}"


def unused_in_container(path: str) -> str:
    """Return the sentence on a file of conda beside a job in a container."""
    return f"{path} is not used in containers: a Dockerfile installs what they need."


def refused_in_container(path: str, field: str = "requirements_file") -> InvalidInput:
    """Return the error for packages of conda that a job in a container names."""
    return InvalidInput(
        f"A job in a container cannot use {path}: conda environments are built outside of them.",
        code="conda_in_container",
        field=field,
        next_step="Run the job without a container (backend: process), or install the packages in "
        "a Dockerfile.",
    )
