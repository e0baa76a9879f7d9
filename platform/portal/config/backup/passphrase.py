"""The passphrase of a backup: from a file, the environment or a prompt."""

import getpass
import sys
from pathlib import Path

from portal.config.backup.encryption import MIN_PASSPHRASE
from portal.config.backup.errors import BackupError

_SOURCES = (
    "enter one at the prompt, or set --passphrase-file FILE or SLIPWAY_BACKUP_PASSPHRASE; "
    "--unencrypted creates a backup without one"
)


def new_passphrase(file: Path | None, variable: str) -> str:
    """Return the passphrase of a new backup, prompting twice if not given. Raise BackupError."""
    passphrase = _read_passphrase(file, variable)
    if passphrase is None:
        passphrase = _prompt("Passphrase of the backup: ")
        if getpass.getpass("Repeat the passphrase: ") != passphrase:
            raise BackupError("the two passphrases differ; nothing was written")
    if len(passphrase) < MIN_PASSPHRASE:
        raise BackupError(
            f"the passphrase has {len(passphrase)} characters, and at least {MIN_PASSPHRASE} are "
            "needed: anyone who gets the file can try passphrases offline; use several random "
            "words"
        )
    return passphrase


def known_passphrase(file: Path | None, variable: str) -> str:
    """Return the passphrase of an existing backup. Raise BackupError if there is none."""
    passphrase = _read_passphrase(file, variable)
    return _prompt("Passphrase of the backup: ") if passphrase is None else passphrase


def _read_passphrase(file: Path | None, variable: str) -> str | None:
    if file is not None:
        return _require_passphrase(file.expanduser().read_text("utf-8").rstrip("\r\n"))
    return _require_passphrase(variable) if variable else None


def _prompt(text: str) -> str:
    if not sys.stdin.isatty():
        raise BackupError(f"the backup needs a passphrase: {_SOURCES}")
    return _require_passphrase(getpass.getpass(text))


def _require_passphrase(passphrase: str) -> str:
    if not passphrase:
        raise BackupError(f"the passphrase is empty: {_SOURCES}")
    return passphrase
