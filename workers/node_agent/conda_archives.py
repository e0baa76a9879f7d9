"""Archives of conda packages on this node, by sha256: each is downloaded once for all projects.

Only the agent writes here, after it has verified the digest. Steps of builds may read. Nothing of
an archive is unpacked here.
"""

import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from slipway.requirement_files.conda_packages import LockedArchive
from workers.node_agent.errors import StartError

log = logging.getLogger(__name__)
KEPT_BYTES: Final = 10 << 30
# Archives used this recently may be needed by a build that runs.
_SPARE_S: Final = 7200.0
_PIECE_BYTES: Final = 1 << 20


class WrongDigest(Exception):
    """The bytes of an archive differ from those that its digest names."""


class CondaArchives:
    """The folder of archives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder."""
        self.folder.mkdir(mode=0o711, exist_ok=True)
        # Users of projects traverse it where there are no mount namespaces.
        self.folder.chmod(0o711)

    def path_of(self, archive: LockedArchive) -> Path:
        """Return the file of an archive, which may not exist."""
        return self.folder / archive.sha256 / archive.file_name

    def missing(self, archives: Iterable[LockedArchive]) -> list[LockedArchive]:
        """Return the archives that are not here. Others are verified, and count as used."""
        return [archive for archive in archives if not self._has(archive)]

    def _has(self, archive: LockedArchive) -> bool:
        path = self.path_of(archive)
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return False
        if digest != archive.sha256:
            log.error("%s has changed on the disk: it will be downloaded again", path)
            shutil.rmtree(path.parent, ignore_errors=True)
            return False
        with suppress(OSError):
            os.utime(path.parent)
        return True

    def add(self, archive: LockedArchive, downloaded: Path) -> None:
        """Copy a file that a step has downloaded. Raises WrongDigest, and StartError without it."""
        draft = self.folder / f".{secrets.token_hex(8)}"
        digest = hashlib.sha256()
        try:
            draft.mkdir(mode=0o755)
            draft.chmod(0o755)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            target = draft / archive.file_name
            with os.fdopen(os.open(downloaded, flags), "rb") as source, target.open("xb") as file:
                while piece := source.read(_PIECE_BYTES):
                    digest.update(piece)
                    file.write(piece)
            target.chmod(0o444)
            if digest.hexdigest() != archive.sha256:
                raise WrongDigest(digest.hexdigest())
            with suppress(OSError):  # another build has added it
                draft.rename(self.folder / archive.sha256)
        except OSError as error:
            raise StartError(f"{archive.file_name} cannot be stored: {error.strerror}.") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def prune(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Remove the least recently used archives beyond `kept_bytes`."""
        if not self.folder.is_dir():
            return
        aged = sorted(
            (path.stat().st_mtime, sum(file.stat().st_size for file in path.iterdir()), path)
            for path in self.folder.iterdir()
        )
        total = sum(size for _, size, _ in aged)
        for used_at, size, path in aged:
            if total <= kept_bytes or time.time() - used_at < _SPARE_S:
                return
            shutil.rmtree(path, ignore_errors=True)
            total -= size
