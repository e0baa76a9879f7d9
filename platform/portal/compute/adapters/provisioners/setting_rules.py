"""Rules that the settings of provisioners have in common."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import AfterValidator, BaseModel, ValidationError

from portal.core.errors import InvalidInput

ADDRESS: Final = r"https?://[A-Za-z0-9.:\[\]_-]{1,253}(/[A-Za-z0-9._/-]*)?"


def matching(pattern: str, description: str) -> AfterValidator:
    """Return a rule for a text that is empty or matches a pattern."""

    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise ValueError(f"it must be {description}")
        return text

    return AfterValidator(check)


def clean_settings(
    provisioner: str, model: type[BaseModel], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return checked settings, without those that are the default. Raises InvalidInput."""
    try:
        return model.model_validate(dict(settings)).model_dump(exclude_defaults=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        if first["type"] == "extra_forbidden":
            message = f"The provisioner {provisioner} has no setting {name}."
        elif first["type"] == "missing":
            message = f"The setting {name} is required."
        else:
            reason = first["msg"].removeprefix("Value error, ")
            message = f"The setting {name} is not valid: {reason}."
        raise InvalidInput(
            message,
            field="settings",
            next_step=f"Settings: {', '.join(model.model_fields)}.",
        ) from error
