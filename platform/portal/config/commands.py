"""Dispatch of `manage.py`: settings are checked first, so a broken `.env` is one clear line."""

import importlib

from portal.config import explain, up
from portal.config import run as single
from portal.config.entry import exit_on_invalid_settings


def run(argv: list[str]) -> None:
    """Run one administrative command. Exit with status 2 when the settings are invalid."""
    exit_on_invalid_settings()
    match argv[1:]:
        case ["up", *rest]:
            raise SystemExit(up.main(rest))
        case ["run", *rest]:
            raise SystemExit(single.main(rest))
        case ["settings", *rest]:
            raise SystemExit(explain.main(rest))
    # Imported late, since the supervisor runs for months and needs no Django.
    importlib.import_module("django.core.management").execute_from_command_line(argv)
