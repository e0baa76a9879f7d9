"""The form with the declarations that the tables of a version are read with."""

from typing import Any, get_args

from django.http import QueryDict
from pydantic import ValidationError

from portal.core.errors import InvalidInput
from portal.datasets.models import Version
from portal.web.datasets.presenters import SEPARATORS
from slipway.schemas.tables import MISSING_WORDS, Encoding, ReadSettings


def form_context(version: Version) -> dict[str, Any]:
    """Return what the form shows: the declarations of a version and the choices."""
    settings = ReadSettings.model_validate(version.settings)
    return {
        "types": "\n".join(f"{name}={kind}" for name, kind in settings.types.items()),
        "missing": ", ".join(word for word in settings.missing or [] if word),
        "default_missing": ", ".join(MISSING_WORDS),
        "encoding": settings.encoding,
        "encodings": get_args(Encoding),
        "separator": settings.separator,
        "sheet": settings.sheet or "",
        "separators": SEPARATORS.items(),
        "plain_files": "\n".join(settings.plain_files),
    }


def settings_of(form: QueryDict) -> ReadSettings | None:
    """Return the declarations that a form holds, None for a form without them.

    Raises InvalidInput.
    """
    if "types" not in form:
        return None
    types: dict[str, str] = {}
    for line in str(form["types"]).splitlines():
        column, equals, kind = line.strip().rpartition("=")
        if equals and column:
            types[column.strip()] = kind.strip()
        elif line.strip():
            raise InvalidInput(
                f"{line.strip()[:100]} declares no type.",
                field="types",
                next_step="Write COLUMN=TYPE, such as zip=string.",
            )
    words = form.get("missing", "").strip()
    plain_files = str(form.get("plain_files", "")).splitlines()
    try:
        return ReadSettings.model_validate(
            {
                "types": types,
                "missing": ["", *(word.strip() for word in words.split(","))] if words else None,
                "encoding": form.get("encoding") or None,
                "separator": form.get("separator") or None,
                "sheet": form.get("sheet", "").strip() or None,
                "plain_files": [line.strip() for line in plain_files if line.strip()],
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"{place} is not valid: {first['msg']}.",
            field=str(first["loc"][0]),
            next_step="Correct it and check the version again.",
        ) from error
