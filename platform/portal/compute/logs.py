"""The configured log store."""

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from portal.compute.adapters.file_logs import FileLogs
from portal.compute.ports import LogStore


@lru_cache(maxsize=8)
def _open_log_store(folder: Path) -> LogStore:
    return FileLogs(folder)


def log_store() -> LogStore:
    """Return the store of this installation: files in the data folder."""
    return _open_log_store(Path(settings.DATA_DIR) / "logs")


def stored_text(text: str, *, limit: int) -> str:
    """Return untrusted text that any database stores: no NUL, no lone surrogates, truncated."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:limit]
