"""Reader of `.env`, and the error for invalid settings."""

from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

# Not a field of Env, because it decides where the fields are read from.
ENV_FILE_VARIABLE = "SLIPWAY_ENV_FILE"


class SettingsError(Exception):
    """The environment or `.env` is invalid. The message has one line for each fault."""


def env_file(environ: Mapping[str, str], folder: Path) -> Path:
    """Return the file with settings, `.env` in a folder by default.

    Raise SettingsError if a named file is missing.
    """
    named = environ.get(ENV_FILE_VARIABLE)
    if not named:
        return folder / ".env"
    path = folder / Path(named).expanduser()
    if not path.exists():
        raise SettingsError(f"{ENV_FILE_VARIABLE} names {path}, which does not exist.")
    return path


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a `.env` file, none when it is missing. Raise SettingsError."""
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read ({error}); fix or remove it.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and "=" not in stripped:
            raise SettingsError(
                f"{path.name} line {number} has no '='; write NAME=value, "
                "for example SLIPWAY_PORTAL_PORT=8000."
            )
    values = dotenv_values(path, interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
