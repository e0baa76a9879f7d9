"""The relay's side of the connection of one node."""

import asyncio
import logging
from pathlib import Path
from typing import Final

import pydantic

from slipway.schemas.relay import AnyTarget, RelayGrant
from workers.portal_client.client import AsyncPortalClient, PortalRefused, PortalUnreachable, parsed
from workers.relay.doors import Door
from workers.relay.frames import Frame, FrameKind, ProtocolError, RegisterAnswer, pack_text
from workers.relay.multiplexer import Multiplexer, Socket

log = logging.getLogger(__name__)
CHECK_EVERY_S: Final = 20.0
MAX_TARGETS: Final = 64
_POLICY_VIOLATION: Final = 1008
_LOST: Final = "The connection to the node was lost."
_REMOVED: Final = "The node is not known any more."
_CHECKS_AT_ONCE: Final = 16
_TARGET: Final = pydantic.TypeAdapter[AnyTarget](AnyTarget)


class Portal:
    """Asks the portal, with a node's own token, what the node may serve."""

    def __init__(self, url: str) -> None:
        self._client = AsyncPortalClient(f"{url}/api/agent/v1/")
        self._turn = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def grant(self, token: str) -> RelayGrant:
        """Return the node's grant. Raises PortalUnreachable or PortalRefused."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self._turn:
            answer = await self._client.request("GET", "relay", headers=headers)
        return parsed(RelayGrant, answer.content)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class NodeConnection:
    """One node, while its agent is connected. Its doors exist as long."""

    def __init__(
        self, socket: Socket, *, token: str, grant: RelayGrant, portal: Portal, folder: Path
    ) -> None:
        self.node_id = grant.node_id
        self._socket = socket
        self._token = token
        self._grant = grant
        self._portal = portal
        self._folder = folder
        self._doors: dict[str, Door] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = asyncio.Lock()
        self._registering = 0
        self._multiplexer = Multiplexer(socket, on_message=self._on_message)

    async def run(self) -> str:
        """Serve until the connection ends. Return the reason."""
        checks = asyncio.create_task(self._check_periodically())
        reason = _LOST
        try:
            reason = await self._multiplexer.run(_LOST)
        finally:
            checks.cancel()
            for task in list(self._tasks):
                task.cancel()
            for door in self._doors.values():
                door.close(reason)
            self._doors.clear()
        return reason

    async def close(self, reason: str) -> None:
        """End the connection. The agent is told the reason."""
        await self._socket.close(_POLICY_VIOLATION, reason)

    def _on_message(self, frame: Frame) -> None:
        if frame.kind is FrameKind.REGISTER:
            try:
                target = _TARGET.validate_json(frame.text)
            except pydantic.ValidationError:
                raise ProtocolError("a REGISTER frame holds no target") from None
            if self._registering >= MAX_TARGETS:
                raise ProtocolError("too many targets are registered at once")
            self._registering += 1
            task = asyncio.create_task(self._register(target))
            self._tasks.add(task)
            task.add_done_callback(self._on_registered)
        elif frame.kind is FrameKind.UNREGISTER:
            door = self._doors.pop(frame.text, None)
            if door is not None:
                door.close("The workload has ended.")
        else:
            raise ProtocolError(f"a {frame.kind.name} frame does not belong to stream 0")

    def _on_registered(self, task: asyncio.Task[None]) -> None:
        self._registering -= 1
        self._tasks.discard(task)

    async def _register(self, target: AnyTarget) -> None:
        try:
            reason, is_final = await self._refusal_of(target), True
        except PortalRefused as error:
            reason, is_final = f"The portal refuses the node: {error.detail}", True
        except PortalUnreachable as error:
            reason, is_final = f"The portal does not respond: {error}", False
        if not reason and target.name not in self._doors:
            door = Door(self._folder, target, self._multiplexer)
            try:
                await door.open()
            except OSError as error:
                reason, is_final = f"The relay cannot open a socket: {error.strerror}.", False
            else:
                self._doors[target.name] = door
        answer = RegisterAnswer(name=target.name, reason=reason, is_final=bool(reason) and is_final)
        self._multiplexer.post(pack_text(FrameKind.ANSWER, 0, answer.model_dump_json()))

    async def _refusal_of(self, target: AnyTarget) -> str:
        """Return why the node may not serve the target, or nothing.

        Raises PortalUnreachable or PortalRefused.
        """
        if len(self._doors) >= MAX_TARGETS and target.name not in self._doors:
            return f"A node serves at most {MAX_TARGETS} workloads."
        async with self._asking:
            if not self._grant.allows(target):
                self._grant = await self._portal.grant(self._token)
        if not self._grant.allows(target):
            return "No such workload runs on this node."
        return ""

    async def _check_periodically(self) -> None:
        """Close doors of workloads that have left the node, and the connection of a removed one."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                async with self._asking:
                    self._grant = await self._portal.grant(self._token)
            except PortalUnreachable as error:
                log.info("the node %s cannot be checked: %s", self.node_id, error)
                continue
            except PortalRefused:
                await self.close(_REMOVED)
                return
            for name, door in list(self._doors.items()):
                if not self._grant.allows(door.target):
                    del self._doors[name]
                    door.close("The workload has left the node.")
