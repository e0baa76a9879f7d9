"""Request bodies built from a caller's arguments, and the places objects belong to."""

from typing import Any, TypeVar

from pydantic import ValidationError

from slipway.errors import InvalidInput
from slipway.schemas.base import RequestSchema
from slipway.schemas.problem import FieldError

Body = TypeVar("Body", bound=RequestSchema)


def build(schema: type[Body], /, **fields: Any) -> Body:
    """Return the request body of `fields`. None means left out. Raises InvalidInput.

    The values themselves are kept out of the error: one of them may be a secret.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return schema.model_validate(given)
    except ValidationError as error:
        faults = [
            FieldError(
                field=".".join(map(str, fault["loc"])) or "request",
                message=fault["msg"].removeprefix("Value error, "),
            )
            for fault in error.errors(include_input=False, include_url=False)
        ]
    names = ", ".join(dict.fromkeys(fault.field for fault in faults))
    raise InvalidInput(
        f"The request was not sent: {names} cannot be accepted.",
        field=faults[0].field,
        errors=faults,
        next_step="Correct what is named above.",
    )


def owner_path(project: str | None, team: str | None) -> tuple[str, str]:
    """Return the path of the project or the team, exactly one of which is given by its slug."""
    if project is not None and team is None:
        return ("projects", project)
    if team is not None and project is None:
        return ("teams", team)
    raise InvalidInput(
        "Exactly one of `project` and `team` must be named.",
        field="project",
        next_step='Pass project="…" or team="…".',
    )
