"""Pushes images of projects to the registry of the installation, with an account of the node."""

import base64
import binascii
import json
import re
from pathlib import Path
from typing import Any, Final

from workers.node_agent.backends.base import BuildLog
from workers.node_agent.backends.engine import Engine, EngineError

_REPOSITORY: Final = re.compile(r"[a-z0-9][a-z0-9.-]*(?::\d{1,5})?(?:/[a-z0-9][a-z0-9._-]*)+")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class RegistryPush:
    """Pushes images of one engine. `accounts` is a file like Docker's `config.json`."""

    def __init__(self, engine: Engine, accounts: Path | None) -> None:
        self._engine = engine
        self._accounts = accounts

    async def push(self, image: str, repository: str, tag: str, build_log: BuildLog) -> str:
        """Push an image and return its name by digest. Raises EngineError.

        Layers that the registry has already are not sent again.
        """
        build_log.write(f"Pushing it to {repository}.\n")
        if not _REPOSITORY.fullmatch(repository):
            raise EngineError(0, f"{repository[:100]!r} is not a repository of images")
        account = self._account(repository.partition("/")[0])
        digests = []

        async def on_event(event: dict[str, Any]) -> None:
            digest = str((event.get("aux") or {}).get("Digest", ""))
            if _DIGEST.fullmatch(digest):
                digests.append(digest)

        await self._engine.call(lambda docker: docker.tag(image, repository, tag, force=True))
        try:
            await self._engine.push(repository, tag, account, on_event)
        finally:
            # The image has its own name, and goes with that.
            await self._engine.call(lambda docker: docker.remove_image(f"{repository}:{tag}"))
        if not digests:
            raise EngineError(0, f"{repository} did not say under which digest it stores the image")
        return f"{repository}@{digests[-1]}"

    def _account(self, registry: str) -> dict[str, str]:
        """Return the account of a registry, empty without one. Raises EngineError."""
        if self._accounts is None:
            return {}
        try:
            document = json.loads(self._accounts.read_text("utf-8"))
            entry = document["auths"].get(registry) or {}
            if not entry:
                return {}
            if "auth" in entry:
                pair = base64.b64decode(entry["auth"], validate=True).decode()
                username, _, password = pair.partition(":")
                return {"username": username, "password": password}
            return {"username": entry["username"], "password": entry["password"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            # Without the text of the error, which may have a part of the file.
            raise EngineError(
                0, "the file of --registry-auth is not a readable config.json of Docker"
            ) from error
