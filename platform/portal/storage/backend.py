"""The configured store, from SLIPWAY_STORAGE_URL and SLIPWAY_STORAGE_OPTIONS."""

import os
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

from portal.storage.adapters.disk import DiskStore
from portal.storage.adapters.s3 import S3Store
from portal.storage.ports import BlobStore


def open_store(url: str, options: dict[str, Any]) -> BlobStore:
    """Return the store at `file:///folder` or `s3://bucket/prefix` without contacting it.

    `options` go to fsspec (for S3: endpoint_url, key, secret). Raises ValueError for another URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1:
        return DiskStore(unquote(parts.path).rstrip("/"), {})
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(f"{parts.netloc}{unquote(parts.path)}".rstrip("/"), options)
    raise ValueError(f"{url} is not a storage location; use file:///folder or s3://bucket/prefix")


@lru_cache(maxsize=8)
def _open_backend(_pid: int, url: str, options: tuple[tuple[str, Any], ...]) -> BlobStore:
    return open_store(url, dict(options))


def blob_store() -> BlobStore:
    """Return the store of this process. A forked child gets one with connections of its own."""
    options = tuple(sorted(settings.SLIPWAY_STORAGE_OPTIONS.items()))
    return _open_backend(os.getpid(), settings.SLIPWAY_STORAGE_URL, options)
