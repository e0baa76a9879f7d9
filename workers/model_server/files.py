"""The files of a model: fetched where they are missing, and checked by digest always."""

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import httpx

from slipway.schemas.serving import ModelFile, ReplicaSpec
from workers.model_server.errors import NotReady

_PIECE_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 60.0
# Variable with the folder in which tasks of a project share downloads on a node.
_CACHE: Final = "SLIPWAY_CACHE"


def fetch_files(spec: ReplicaSpec) -> Path:
    """Return the folder with every file of the model, each verified. Raises NotReady.

    A file that was fetched once on this node is not fetched again. It is verified while it is
    copied from the cache, so that nobody can change it in between.
    """
    folder = Path(spec.model_dir).absolute()
    cache = os.environ.get(_CACHE)
    blobs = Path(cache, "models") if cache else None
    headers = {"Authorization": f"Bearer {spec.token}"} if spec.token else {}
    with httpx.Client(timeout=_PATIENCE_S, headers=headers, follow_redirects=False) as client:
        for file in spec.files:
            _fetch_file(client, folder, blobs, file)
    if not folder.exists():
        raise NotReady("The folder of the model does not exist.")
    return folder


def _fetch_file(client: httpx.Client, folder: Path, blobs: Path | None, file: ModelFile) -> None:
    path = Path(file.path)
    if path.is_absolute() or ".." in path.parts or "\\" in file.path or not path.parts:
        raise NotReady(f"The model names a file outside its folder: {file.path!r}.")
    target = folder / path
    if target.is_file() and not target.is_symlink() and _digest(target) == file.sha256:
        return
    if file.url is None:
        state = "does not match its digest" if target.exists() else "is missing"
        raise NotReady(f"{file.path} of the model {state}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    if blobs is None:
        _fetch(client, file, target)
        return
    blob = blobs / file.sha256
    if not _copy_from_cache(blob, target, file.sha256):
        blobs.mkdir(parents=True, exist_ok=True)
        _fetch(client, file, blob)
        if not _copy_from_cache(blob, target, file.sha256):
            raise NotReady(f"{file.path} of the model was changed in the cache of this node.")


def _copy_from_cache(blob: Path, target: Path, sha256: str) -> bool:
    """Copy a file from the cache. Return False if it is missing or does not match its digest."""
    digest = hashlib.sha256()
    try:
        source = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    draft = target.with_name(f".{target.name}.part")
    with os.fdopen(source, "rb") as file, draft.open("wb") as out:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return False
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != sha256:
        draft.unlink()
        return False
    draft.replace(target)
    return True


def _fetch(client: httpx.Client, file: ModelFile, target: Path) -> None:
    # Other replicas of the project may fetch the same file at the same time.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    digest, size = hashlib.sha256(), 0
    try:
        with client.stream("GET", file.url or "") as answer, draft.open("wb") as out:
            if answer.status_code != 200:
                raise NotReady(
                    f"{file.path} of the model: the store responded with {answer.status_code}."
                )
            for piece in answer.iter_bytes(_PIECE_BYTES):
                size += len(piece)
                if size > file.size_bytes:
                    raise NotReady(f"{file.path} of the model is larger than registered.")
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != file.sha256:
            raise NotReady(f"{file.path} of the model does not match its digest.")
        draft.replace(target)
    except httpx.HTTPError as error:
        raise NotReady(f"{file.path} of the model cannot be fetched: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
