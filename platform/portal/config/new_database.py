"""Permission to create a database file: never in a data folder that was in use."""

from pathlib import Path

from portal.config.backends.sqlite.files import allow_creation
from portal.config.backup.create import database_files
from portal.config.env import Env
from portal.config.setup.state import was_prepared
from portal.config.supervision.errors import StartError


def check_database_files(settings: Env, *, begin_anew: bool) -> None:
    """Allow this process to create databases. Raise StartError when they should exist already."""
    missing = [] if settings.database_url.startswith("postgres") else _missing(settings)
    if missing and not begin_anew and _has_existing_data(settings):
        names = " and ".join(map(str, missing))
        raise StartError(
            f"{names} {'is' if len(missing) == 1 else 'are'} missing, although "
            f"{settings.data_dir} was already in use. Put the file back, or restore a backup: "
            "move the folder away and run `manage.py restore FILE`. To start with an empty "
            "database and keep the other files, run `manage.py prepare --new-database` once."
        )
    allow_creation()


def _missing(settings: Env) -> list[Path]:
    return [path for path in database_files(settings).values() if not path.exists()]


def _has_existing_data(settings: Env) -> bool:
    """Return whether a set-up was finished here, or bytes were stored."""
    blobs = settings.data_dir / "blobs"
    return was_prepared(settings) or (blobs.is_dir() and any(blobs.iterdir()))
