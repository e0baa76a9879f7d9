"""Code as people have it (a script, a zip, a tar of a folder), made into a snapshot."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput, SlipwayError, TooLarge
from portal.storage.archives.limits import Limits
from portal.storage.archives.pack import pack
from portal.storage.archives.unpack import unpack
from portal.storage.ports import Promised
from portal.storage.services import clean_file_name
from portal.training.models import Snapshot
from portal.training.services.snapshots import MAX_SNAPSHOT_BYTES, take_in

_LIMITS = Limits(
    members=50_000, total_bytes=MAX_SNAPSHOT_BYTES, member_bytes=MAX_SNAPSHOT_BYTES, depth=64
)
_TAR_MARK_AT, _TAR_MARK = 257, b"ustar"
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b")


def take_upload(*, project: Project, by: User, name: str, chunks: Iterable[bytes]) -> Snapshot:
    """Make an uploaded file a snapshot: one Python script, or a .zip, .tar or .tar.gz of a folder.

    What an archive holds in one folder alone becomes the root, so that scripts have the paths they
    have there. Call it outside a transaction. Raises InvalidInput or TooLarge on the field `code`.
    """
    try:
        with TemporaryDirectory(prefix="slipway-code-") as scratch:
            folder = _unfolded(Path(scratch), clean_file_name(name), chunks)
            return take_in(
                project=project,
                by=by,
                chunks=pack(folder, compressed=False, limits=_LIMITS),
                promised=Promised(),
            )
    except SlipwayError as error:
        error.field = "code"
        raise


def _unfolded(scratch: Path, name: str, chunks: Iterable[bytes]) -> Path:
    """Return a folder with the code as it is to run."""
    received, code = scratch / "upload", scratch / "code"
    _write(received, chunks)
    with received.open("rb") as file:
        start = file.read(_TAR_MARK_AT + len(_TAR_MARK))
        file.seek(0)
        if start.startswith(_ARCHIVES) or start[_TAR_MARK_AT:] == _TAR_MARK:
            unpack(file, into=code, limits=_LIMITS)
            return _root_of(code)
    if not name.endswith(".py"):
        raise InvalidInput(
            f"{name} is neither a Python script nor a .zip, .tar or .tar.gz.",
            code="bad_code",
            next_step="Choose a script that ends in .py, or pack the folder it lives in.",
        )
    code.mkdir()
    received.rename(code / name)
    return code


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    size_bytes = 0
    with path.open("wb") as file:
        for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > MAX_SNAPSHOT_BYTES:
                raise TooLarge(
                    f"The file has more than {MAX_SNAPSHOT_BYTES // 1024**2} MiB.",
                    code="snapshot_too_large",
                    next_step="Leave data and models out of it.",
                )
            file.write(chunk)


def _root_of(folder: Path) -> Path:
    """Step into folders that stand alone, as archives of a folder have them."""
    while True:
        inside = list(folder.iterdir())
        if len(inside) != 1 or not inside[0].is_dir():
            return folder
        folder = inside[0]
