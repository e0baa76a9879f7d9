"""Wheels and source archives of a job's code, fetched by their digests for a build."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError
from workers.node_agent.portal import Portal
from workers.node_agent.requirement_lines import NodeRequirements
from workers.portal_client.backoff import retry_until_answered
from workers.portal_client.client import PortalRefused

# Gets the archive with a digest, hex SHA-256, into a new file. Raises StartError.
FetchArchive = Callable[[str, Path], Awaitable[None]]
_MAX_BYTES: Final = 1024**3


async def no_archives(digest: str, _path: Path) -> None:
    """Raise StartError: there is no project that the archive could be of."""
    raise _failed(f"the archive {digest[:12]} belongs to the code of a project")


async def fetch_all(fetch: FetchArchive, requirements: NodeRequirements, folder: Path) -> None:
    """Fetch what requirements name into the places that they have in a folder.

    Raises StartError.
    """
    for place, archive in requirements.archive_places().items():
        path = folder / place
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        await fetch(archive.sha256, path)


async def fetch_archive(
    portal: Portal, environment: str, project: str, digest: str, path: Path
) -> None:
    """Fetch an archive of a project for a build of an environment. Raises StartError."""
    try:
        await retry_until_answered(lambda: _download(portal, environment, project, digest, path))
    except PortalRefused as error:
        raise _failed(f"the archive {path.name} could not be fetched: {error}") from error
    except OSError as error:
        raise _failed(f"the archive {path.name} could not be stored: {error}") from error


async def _download(
    portal: Portal, environment: str, project: str, digest: str, path: Path
) -> None:
    sha256, size_bytes = hashlib.sha256(), 0
    with path.open("wb") as file:
        async with portal.archive(environment, project, digest) as blocks:
            async for block in blocks:
                size_bytes += len(block)
                if size_bytes > _MAX_BYTES:
                    raise _failed(f"the archive {path.name} is larger than {_MAX_BYTES} bytes")
                sha256.update(block)
                file.write(block)
    if sha256.hexdigest() != digest:
        raise _failed(
            f"the archive {path.name} arrived damaged: expected the SHA-256 {digest}, got "
            f"{sha256.hexdigest()}"
        )


def _failed(why: str) -> StartError:
    return StartError(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
