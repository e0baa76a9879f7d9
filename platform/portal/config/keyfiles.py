"""Keys stored as files. Imports no cryptography, so that the supervisor stays small."""

import os
import secrets
from pathlib import Path


def read_or_create(path: Path, fresh: bytes) -> str:
    """Return the content of the key file. The first caller writes `fresh`, for the owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    if not path.exists():
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(fresh)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # the first process wins, the others read its key
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii").strip()


def redis_password(folder: Path) -> str:
    """Return the password of the embedded Redis."""
    return read_or_create(folder / "redis.key", secrets.token_urlsafe(32).encode())


def metrics_token(folder: Path) -> str:
    """Return the token for the metrics of the portal and of the control worker."""
    return read_or_create(folder / "metrics.key", secrets.token_urlsafe(32).encode())


def tracking_key(folder: Path) -> Path:
    """Return the file of the secret by which the portal authenticates to MLflow's server."""
    return folder / "tracking.key"


def tracking_secret(folder: Path) -> str:
    """Return the secret by which the portal authenticates to MLflow's server."""
    return read_or_create(tracking_key(folder), secrets.token_urlsafe(32).encode())
