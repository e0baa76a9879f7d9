"""Notebooks of a folder: the script a job runs, and what to say of one that is none."""

from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.schemas.notebook import NotebookError
from slipway.schemas.notebook import script_of as made_of


def script_of(content: bytes, *, name: str) -> bytes:
    """Return the code cells of the notebook `name` as a script, or raise InvalidInput.

    See `slipway.schemas.notebook`.
    """
    try:
        return made_of(content, label=visible(name))
    except NotebookError as error:
        raise InvalidInput(
            f"{visible(name)} {error.fault}. Nothing was sent.",
            code="notebook_not_runnable",
            field="script",
            next_step=error.next_step,
        ) from None
