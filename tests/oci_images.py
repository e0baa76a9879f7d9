"""Images of containers as archives, made from local files: no registry is asked."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp", "usr", "var")
_TYPE = "application/vnd.oci.image"


def write_image(
    archive: Path,
    name: str,
    *,
    files: Mapping[str, Path | bytes],
    links: Mapping[str, str],
    entrypoint: list[str],
    variables: Mapping[str, str],
) -> None:
    """Write an image of one layer with these files and links, by their paths in it."""
    layer = _layer(files, links)
    config = _document(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": entrypoint,
                "Env": [
                    "PATH=/usr/bin:/bin",
                    *(f"{key}={value}" for key, value in variables.items()),
                ],
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _document(
        {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": _reference(config, "config.v1+json"),
            "layers": [_reference(layer, "layer.v1.tar")],
        }
    )
    named = _reference(manifest, "manifest.v1+json") | {
        "annotations": {"io.containerd.image.name": name}
    }
    with tarfile.open(archive, "w") as file:
        _add(file, "oci-layout", _document({"imageLayoutVersion": "1.0.0"}))
        _add(file, "index.json", _document({"schemaVersion": 2, "manifests": [named]}))
        for blob in (config, manifest, layer):
            _add(file, f"blobs/sha256/{_digest(blob).partition(':')[2]}", blob)


def _layer(files: Mapping[str, Path | bytes], links: Mapping[str, str]) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as file:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            file.addfile(entry)
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            file.addfile(entry)
        for path, content in files.items():
            _add(file, path, content if isinstance(content, bytes) else content.read_bytes(), 0o755)
    return layer.getvalue()


def _add(file: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    file.addfile(entry, io.BytesIO(content))


def _document(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _reference(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": _digest(blob), "size": len(blob)}
