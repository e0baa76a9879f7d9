"""Base of the stores reached through fsspec: one connection, and the translation of outages."""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import fsspec
import structlog

from portal.core.errors import Unavailable
from portal.storage.ports import BytesMissing, digest_in

log = structlog.get_logger(__name__)


@contextmanager
def report_outages(place: str, kind: type[Exception] = OSError) -> Iterator[None]:
    """Turn errors of that kind into Unavailable, with the reason in the log. BytesMissing passes.

    Wrap calls to the store alone, never the reading of an upload: a client that disconnects is no
    outage.
    """
    try:
        yield
    except BytesMissing:
        raise
    except kind as error:
        log.exception("storage_unavailable", place=place)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(
                "The file storage is full.",
                code="storage_full",
                next_step="Delete files you no longer need, or ask an administrator for space.",
                retry_after_s=60,
            ) from error
        raise Unavailable(
            "The file storage is not working.",
            code="storage_unavailable",
            next_step="Try again in 10 seconds; Slipway's log has the reason.",
            retry_after_s=10,
        ) from error


class FsspecStore:
    """Base of the adapters: `root` is a folder, or a bucket and a prefix, with no trailing slash.

    One file system object serves all threads: fsspec's own cache creates one for each thread, and
    under ASGI a request may have a thread of its own. After a fork a new one must be created.
    """

    # Exception of this protocol's library during an outage.
    _outage: type[Exception] = OSError

    def __init__(self, protocol: str, root: str, options: dict[str, Any]) -> None:
        self.place = f"{protocol}://{root}"
        self._root = root
        self._fs: Any = fsspec.filesystem(protocol, skip_instance_cache=True, **options)

    def outages(self) -> AbstractContextManager[None]:
        """Translate outages in calls to the store."""
        return report_outages(self.place, self._outage)


def checked(key: str) -> str:
    """Return a key of our format. Raise BytesMissing for any other."""
    if digest_in(key) is None:
        raise BytesMissing(key)
    return key
