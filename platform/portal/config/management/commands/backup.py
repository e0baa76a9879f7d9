"""`manage.py backup FILE`: save the whole installation to one file."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from portal.config.backup.archive import is_encrypted
from portal.config.backup.create import save
from portal.config.backup.errors import BackupError
from portal.config.backup.passphrase import known_passphrase, new_passphrase
from portal.config.backup.progress import BackupProgress
from portal.config.backup.restore import check
from portal.config.env import env
from slipway.sanitize import visible


class Command(BaseCommand):
    """Writes rows, keys, files and logs to one file. Slipway may run meanwhile."""

    help = "Save this installation to one encrypted file (it contains the keys)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("file", type=Path, help="output file, such as slipway.backup")
        parser.add_argument(
            "--check", action="store_true", help="read an existing backup and verify all digests"
        )
        add_passphrase_arguments(parser)

    def handle(self, **options: Any) -> None:
        """Save, or check. Failures print one line and exit with 2, missing bytes with 1."""
        path: Path = options["file"].expanduser().absolute()
        progress = BackupProgress(self.stdout.write)
        try:
            if options["check"]:
                passphrase = passphrase_of(path, options)
                manifest = check(path, passphrase=passphrase, progress=progress)
            elif path.exists():
                raise BackupError(f"{path} already exists; name another file")
            else:
                passphrase = self._new_passphrase(options)
                manifest = save(env(), path, passphrase=passphrase, progress=progress)
        except (BackupError, OSError, DatabaseError) as error:
            self.stderr.write(f"slipway: {' '.join(str(error).split())[:500]}", style_func=str)
            sys.exit(2)
        self.stdout.write(
            f"slipway: {path}: {rows_in(manifest):,} rows, {manifest['members']:,} files, "
            f"{manifest['size_bytes'] / 1e6:,.1f} MB, as of {visible(manifest['made_at'][:19])} UTC"
        )
        for name in manifest["missing"]:
            self.stderr.write(
                f"slipway: not included, because it could not be read: {visible(name)}"
            )
        if manifest["missing"]:
            sys.exit(1)

    def _new_passphrase(self, options: dict[str, Any]) -> str | None:
        if not options["unencrypted"]:
            return new_passphrase(options["passphrase_file"], _variable())
        self.stderr.write(
            "slipway: warning: this backup is not encrypted: anyone with the file has the keys "
            "and the secrets of all projects, and changes to it go unnoticed",
            style_func=str,
        )
        return None


def add_passphrase_arguments(parser: ArgumentParser) -> None:
    """Declare the options for opening a backup."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="read the passphrase from a file, instead of SLIPWAY_BACKUP_PASSPHRASE or a prompt",
    )
    how.add_argument("--unencrypted", action="store_true", help="the backup is not encrypted")


def passphrase_of(path: Path, options: dict[str, Any]) -> str | None:
    """Return the passphrase of an existing backup. Raises BackupError and OSError."""
    if options["unencrypted"]:
        return None
    # Do not ask for a passphrase if the file is not encrypted.
    return known_passphrase(options["passphrase_file"], _variable()) if is_encrypted(path) else ""


def _variable() -> str:
    return env().backup_passphrase.get_secret_value()


def rows_in(manifest: dict[str, Any]) -> int:
    """Return the number of rows in a backup."""
    return sum(
        table["rows"] for tables in manifest["databases"].values() for table in tables.values()
    )
