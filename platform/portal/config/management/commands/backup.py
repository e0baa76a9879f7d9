"""`manage.py backup FILE`: everything of this installation in one file."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from portal.config.backup.archive import BackupError
from portal.config.backup.restoring import check
from portal.config.backup.saving import save
from portal.config.env import env


class Command(BaseCommand):
    """Write rows, keys, bytes and logs to one file; Slipway may run meanwhile."""

    help = "Save this installation to one file (keep it safe: it holds the keys)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("file", type=Path, help="where to write it, such as slipway.backup")
        parser.add_argument(
            "--check", action="store_true", help="read an existing backup and compare all digests"
        )

    def handle(self, **options: Any) -> None:
        """Save, or check; a failure is one line, exit status 2, and 1 when bytes were missing."""
        path: Path = options["file"].expanduser().absolute()
        try:
            if options["check"]:
                manifest = check(path)
            elif path.exists():
                raise BackupError(f"{path} is there already; name another file")
            else:
                manifest = save(env(), path)
        except (BackupError, OSError, DatabaseError) as error:
            self.stderr.write(f"slipway: {' '.join(str(error).split())[:500]}", style_func=str)
            sys.exit(2)
        self.stdout.write(
            f"slipway: {path}: {rows_in(manifest):,} rows, {manifest['members']:,} files, "
            f"{manifest['size_bytes'] / 1e6:,.1f} MB, as of {manifest['made_at'][:19]} UTC"
        )
        for name in manifest["missing"]:
            self.stderr.write(f"slipway: not in it, for it could not be read: {name}")
        if manifest["missing"]:
            sys.exit(1)


def rows_in(manifest: dict[str, Any]) -> int:
    """Return the number of rows a backup holds."""
    return sum(
        facts["rows"] for tables in manifest["databases"].values() for facts in tables.values()
    )
