"""Check of the settings, which every program of the portal runs first."""

import sys

from portal.config.env import env
from portal.config.env_file import SettingsError


def exit_on_invalid_settings() -> None:
    """Read the settings. Print each fault as a line on standard error and exit with status 2."""
    try:
        env()
    except SettingsError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"slipway: {line}\n")
        raise SystemExit(2) from None
