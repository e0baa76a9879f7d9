"""Reads `.env`, and the error that says what is wrong with settings."""

from pathlib import Path

from dotenv import dotenv_values


class SettingsError(Exception):
    """The environment or `.env` is wrong; the message has one clear line a fault."""


def read_dotenv(path: Path) -> dict[str, str]:
    """Return what a `.env` sets (nothing when it is missing); raises SettingsError."""
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read ({error}); mend or remove it.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and "=" not in stripped:
            raise SettingsError(
                f"{path.name} line {number} has no '='; write NAME=value, "
                "for example SLIPWAY_PORTAL_PORT=8000."
            )
    values = dotenv_values(path, interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
