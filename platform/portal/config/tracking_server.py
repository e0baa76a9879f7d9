"""MLflow's server: its socket and its process spec.

The supervisor imports this module, so it does not use Django.
"""

import contextlib
import os
import sys
from pathlib import Path

from portal.config.databases import SCHEMA
from portal.config.env import Env
from portal.config.keyfiles import tracking_key, tracking_secret
from portal.config.local_node import base_environment
from portal.config.short_folders import short_folder
from portal.config.supervision.errors import StartError
from portal.config.supervision.probes import unix_http_alive, unix_http_ready
from portal.config.supervision.supervisor import ProcessSpec

# The longest path of a Unix socket that every system accepts, with some margin.
_LONGEST_SOCKET = 100
_LOCK_MS = 1200


def socket_of(data_dir: Path) -> Path:
    """Return the Unix socket of MLflow's server: in the data folder, which others cannot enter.

    Where its path would be too long, it is in a private folder of temporary files.
    Raises StartError when another user created that folder.
    """
    path = data_dir / "tracking.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        return path
    return short_folder(path, holds="the socket of MLflow's server") / "tracking.sock"


def remove_socket(data_dir: Path) -> None:
    """Remove the socket and the folder created for it alone, once nothing uses it any more."""
    with contextlib.suppress(OSError, StartError):
        path = socket_of(data_dir)
        path.unlink(missing_ok=True)
        if path.parent != data_dir:
            path.parent.rmdir()


def store_uri(database_url: str, data_dir: Path) -> str:
    """Return the SQLAlchemy URL of MLflow's tables. It may contain a password."""
    if not database_url.startswith("postgres"):
        return f"sqlite:///{data_dir / 'mlflow.db'}"
    _, _, rest = database_url.partition("://")
    joined = "&" if "?" in rest else "?"
    return f"postgresql+psycopg://{rest}{joined}options=-csearch_path%3D{SCHEMA}"


def _impatient(uri: str) -> str:
    """Set PostgreSQL's lock timeout so short that clients get their 503 in time.

    For SQLite `workers.tracking.sqlite` does it.
    """
    return f"{uri}%20-clock_timeout%3D{_LOCK_MS}" if uri.startswith("postgres") else uri


def artifacts_url(storage_url: str, data_dir: Path) -> str:
    """Return the URL of the artifacts of runs, below the portal's storage URL."""
    if not storage_url:
        return (data_dir / "artifacts").as_uri()
    return f"{storage_url.rstrip('/')}/artifacts"


def _access(settings: Env) -> dict[str, str]:
    """Return the environment variables with which MLflow's server opens a bucket.

    Checksums that only Amazon's own store supports are disabled: others refuse such requests.
    """
    secret = settings.s3_secret_access_key.get_secret_value()
    known = {
        "AWS_ACCESS_KEY_ID": settings.s3_access_key_id,
        "AWS_SECRET_ACCESS_KEY": secret,
        "MLFLOW_S3_ENDPOINT_URL": settings.s3_endpoint_url,
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
    }
    if not settings.storage_url.startswith("s3:"):
        return {}
    return {name: value for name, value in known.items() if value}


def tracking_spec(settings: Env, environ: dict[str, str]) -> ProcessSpec:
    """Return the process spec of MLflow's server. Everything else runs without it."""
    socket, key = socket_of(settings.data_dir), tracking_key(settings.keys_dir)
    secret = tracking_secret(settings.keys_dir)
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ProcessSpec(
        name="tracking",
        argv=(sys.executable, "-m", "workers.tracking", str(socket), str(key)),
        env=base_environment(environ)
        | _access(settings)
        | {
            "SLIPWAY_TRACKING_STORE": _impatient(
                store_uri(settings.database_url, settings.data_dir)
            ),
            "SLIPWAY_TRACKING_ARTIFACTS": artifacts_url(settings.storage_url, settings.data_dir),
        },
        ready=unix_http_ready(socket, "/health", secret=secret),
        alive=unix_http_alive(socket, "/health"),
        serves_others=True,
        optional=True,
        awaited=False,
    )
