"""What the tests of stored bytes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from portal.storage.backend import blob_store
from portal.storage.ports import BlobStore
from tests.portal.storage.swift_server import S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3-compatible server, started once."""
    with s3_server() as server:
        yield server


@pytest.fixture
def store(settings: Settings, tmp_path: Path) -> BlobStore:
    """An empty store on disk, in force."""
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    return blob_store()
