"""pip's settings on this node, read as pip reads them but without starting it.

Starting `pip config list` takes as long as installing twenty packages.
"""

from collections.abc import Iterable
from typing import Any

from pip._internal.configuration import Configuration, Kind, kinds
from pip._internal.exceptions import ConfigurationError

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError


class _NodeConfiguration(Configuration):
    """The files of the machine and of the agent's interpreter, and PIP_ variables.

    Not those of a user: steps of builds have a home of their own.
    """

    def iter_config_files(self) -> Iterable[tuple[Kind, list[str]]]:
        return [(kind, files) for kind, files in super().iter_config_files() if kind != kinds.USER]


def list_pip_settings() -> str:
    """Return the lines that `pip config list` would print in a step of a build.

    Raises StartError for a file that pip cannot read.
    """
    configuration = _NodeConfiguration(isolated=False)
    try:
        configuration.load()
    except ConfigurationError as error:
        raise StartError(
            f"The environment could not be built: pip's settings cannot be read: {error}. "
            "Administrators: correct the file on this node.",
            ReasonCode.ENVIRONMENT_FAILED,
        ) from error
    items: Iterable[tuple[str, Any]] = configuration.items()
    return "\n".join(f"{name}={value!r}" for name, value in sorted(items))
