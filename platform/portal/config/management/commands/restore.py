"""`manage.py restore FILE`: restore a backup into an empty installation."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from portal.config.backends.sqlite.files import allow_creation
from portal.config.backup.errors import BackupError
from portal.config.backup.progress import BackupProgress
from portal.config.backup.restore import restore
from portal.config.env import env
from portal.config.management.commands.backup import (
    add_passphrase_arguments,
    passphrase_of,
    rows_in,
)
from portal.config.setup import steps
from portal.config.supervision.errors import StartError
from portal.config.tracking_schema import prepare_tracking
from slipway.sanitize import visible


class Command(BaseCommand):
    """Fills this installation, which must be empty and stopped, from a backup."""

    help = "Restore an empty installation from a file of `manage.py backup`."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("file", type=Path, help="file of `manage.py backup`")
        add_passphrase_arguments(parser)

    def handle(self, **options: Any) -> None:
        """Restore. Failures print one line, exit with 2, and change no row."""
        path: Path = options["file"].expanduser().absolute()
        progress = BackupProgress(self.stdout.write)
        try:
            passphrase = passphrase_of(path, options)
            steps.check_server(env().database_url)
            with steps.setup_lock(env().data_dir):
                allow_creation()
                steps.migrate()
                prepare_tracking(env().database_url, env().data_dir)
                manifest = restore(env(), path, passphrase=passphrase, progress=progress)
        except (BackupError, StartError, OSError, DatabaseError) as error:
            self.stderr.write(f"slipway: {' '.join(str(error).split())[:500]}", style_func=str)
            sys.exit(2)
        made_at = visible(manifest["made_at"][:19])
        self.stdout.write(
            f"slipway: {rows_in(manifest):,} rows and {manifest['members']:,} files of {made_at} "
            "UTC restored, all digests verified; start with: make up"
        )
