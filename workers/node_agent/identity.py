"""Identity of this node: it joins once with a token and stores its credentials."""

import asyncio
import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.agent import Join, NodeFacts
from workers.launcher.atomic_files import read_json, write_atomically
from workers.node_agent.errors import AgentError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.portal import Portal
from workers.node_agent.settings import AgentSettings
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_RETRY_S: Final = 0.3
# An allocation is held and paid for while its agent waits.
_ALLOCATION_WAITS_S: Final = 600.0


@dataclass(frozen=True)
class Identity:
    """A node of one portal. The token is a secret: the file it rests in is readable by us alone."""

    url: str
    node_id: str
    node_token: str


async def become_node(
    settings: AgentSettings, folders: NodeFolders, portal: Portal, details: NodeFacts
) -> Identity:
    """Use the identity of an earlier start, or join. Waits for a portal that is not there yet.

    Raises AgentError when the portal refuses, or when there is nothing to join with.
    """
    identity = _read_identity(folders.identity)
    if identity is None or identity.url != settings.url:
        identity = await _join(settings, portal, details)
        # Stored before the first use, because a lost token cannot be obtained again.
        write_atomically(folders.identity, json.dumps(asdict(identity)))
    portal.use_token(identity.node_token)
    return identity


def _read_identity(path: Path) -> Identity | None:
    document = read_json(path)
    if document is None:
        return None
    try:
        return Identity(str(document["url"]), str(document["node_id"]), str(document["node_token"]))
    except KeyError:
        return None


async def _join(settings: AgentSettings, portal: Portal, details: NodeFacts) -> Identity:
    token = _join_token(settings)
    matches = False
    began_s = time.monotonic()
    while True:
        try:
            joined = await portal.join(Join(join_token=token, name=settings.name, facts=details))
        except PortalUnreachable as error:
            if settings.allocation and time.monotonic() - began_s > _ALLOCATION_WAITS_S:
                raise AgentError(
                    f"The portal at {settings.url} could not be reached from this machine within "
                    f"{_ALLOCATION_WAITS_S / 60:g} minutes: {error}"
                ) from error
            if not matches:
                log.warning("the portal at %s does not respond yet: %s", settings.url, error)
            matches = True
            await asyncio.sleep(_RETRY_S)
        except PortalRefused as error:
            raise AgentError(
                f"The portal refused to let this node join ({error}). Create a new join token "
                "and try again; each can be used once."
            ) from error
        else:
            log.info("joined %s as %s", settings.url, settings.name)
            return Identity(settings.url, joined.node_id, joined.node_token)


def _join_token(settings: AgentSettings) -> str:
    if settings.allocation is not None:
        return settings.allocation.join_token
    if settings.token_file is None:
        raise AgentError(
            "This machine is not a node yet. Create a join token in the portal (Administration → "
            "Nodes) and start the agent with --token-file FILE."
        )
    return _read_token(settings.token_file)


def _read_token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise AgentError(f"The join token cannot be read from {path}: {error.strerror}.") from error
    if not token:
        raise AgentError(f"{path} is empty; it should contain the join token.")
    return token
