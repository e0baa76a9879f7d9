"""Dispatch of `manage.py`: settings are checked first, so a broken `.env` is one clear line."""

import sys

from django.core.management import execute_from_command_line

from portal.config.env import SettingsError, env


def run(argv: list[str]) -> None:
    """Run one administrative command; exits 2 when the settings are wrong."""
    try:
        env()
    except SettingsError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"slipway: {line}\n")
        raise SystemExit(2) from None
    execute_from_command_line(argv)
