"""Code as people have it (a script, a notebook, a zip or tar of a folder), made into a snapshot."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput, SlipwayError, TooLarge
from portal.storage.archives.limits import ArchiveLimits
from portal.storage.archives.pack import pack
from portal.storage.archives.unpack import unpack
from portal.storage.ports import UploadDeclaration
from portal.storage.services import clean_file_name
from portal.training.models import Snapshot
from portal.training.services.snapshots import MAX_SNAPSHOT_BYTES, ingest_snapshot
from slipway.schemas.notebook import SUFFIX, NotebookError, script_name, script_of

_LIMITS = ArchiveLimits(
    members=50_000, total_bytes=MAX_SNAPSHOT_BYTES, member_bytes=MAX_SNAPSHOT_BYTES, depth=64
)
_MOST_NOTEBOOKS, _LARGEST_NOTEBOOK_BYTES = 200, 20 * 1024**2
_TAR_MARK_AT, _TAR_MARK = 257, b"ustar"
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b")


def ingest_upload(*, project: Project, by: User, name: str, chunks: Iterable[bytes]) -> Snapshot:
    """Make an uploaded file a snapshot: a Python script, a notebook, or a .zip, .tar or .tar.gz.

    What an archive holds in one folder alone becomes the root, so that scripts have the paths they
    have there. Beside each notebook comes the script of its code cells. Call it outside a
    transaction. Raises InvalidInput or TooLarge on the field `code`.
    """
    try:
        with TemporaryDirectory(prefix="slipway-code-") as scratch:
            folder = _unpack(Path(scratch), clean_file_name(name), chunks)
            return ingest_snapshot(
                project=project,
                by=by,
                chunks=pack(folder, compressed=False, limits=_LIMITS),
                promised=UploadDeclaration(),
            )
    except SlipwayError as error:
        error.field = "code"
        raise


def _unpack(scratch: Path, name: str, chunks: Iterable[bytes]) -> Path:
    """Return a folder with the code as it is to run."""
    received, code = scratch / "upload", scratch / "code"
    _write(received, chunks)
    with received.open("rb") as file:
        start = file.read(_TAR_MARK_AT + len(_TAR_MARK))
        file.seek(0)
        if start.startswith(_ARCHIVES) or start[_TAR_MARK_AT:] == _TAR_MARK:
            unpack(file, into=code, limits=_LIMITS)
            _write_scripts_of_notebooks(code)
            return _root_of(code)
    if not name.endswith((".py", SUFFIX)):
        raise InvalidInput(
            f"{name} is neither a Python script, nor a notebook, nor a .zip, .tar or .tar.gz.",
            code="bad_code",
            next_step="Choose a script that ends in .py, or pack its folder.",
        )
    code.mkdir()
    received.rename(code / name)
    if name.endswith(SUFFIX):
        _write_script_of(code / name)
    return code


def _write_scripts_of_notebooks(folder: Path) -> None:
    """Write scripts of the notebooks that can run as a script, and skip the others."""
    paths = (path for path in sorted(folder.rglob(f"*{SUFFIX}")) if path.is_file())
    for path in list(paths)[:_MOST_NOTEBOOKS]:
        with suppress(InvalidInput):
            _write_script_of(path)


def _write_script_of(notebook: Path) -> None:
    """Write the script of a notebook beside it. Raises InvalidInput when it is none."""
    script = notebook.with_name(script_name(notebook.name))
    try:
        if notebook.stat().st_size > _LARGEST_NOTEBOOK_BYTES:
            limit_mib = _LARGEST_NOTEBOOK_BYTES // 1024**2
            raise NotebookError(f"has more than {limit_mib} MiB", "Clear its outputs.")
        made = script_of(notebook.read_bytes(), label=" ".join(notebook.name.split()))
    except NotebookError as error:
        raise InvalidInput(
            f"{notebook.name} {error.fault}.",
            code="notebook_not_runnable",
            next_step=error.next_step,
        ) from None
    if not script.exists():
        script.write_bytes(made)


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
    """Step into folders that are the only entry, as archives of a folder have them."""
    while True:
        inside = list(folder.iterdir())
        if len(inside) != 1 or not inside[0].is_dir():
            return folder
        folder = inside[0]
