"""Saves texts that several people edit, so that nobody overwrites what they have not read."""

from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import F

from portal.accounts.models import User
from portal.accounts.models.readmes import EditedText
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import forbidden_in_text

T = TypeVar("T", bound=EditedText)


def clean_markdown(text: str, *, noun: str, most: int) -> str:
    """Return a text as it is stored.

    Raises InvalidInput for one of more than `most` characters, or with a character that cannot be
    stored. `noun` names the text: "The README".
    """
    text = text.replace("\r\n", "\n").strip()
    if len(text) > most:
        raise InvalidInput(
            f"{noun} has {len(text):,} characters; at most {most:,} are allowed.",
            field="text",
            next_step="Shorten it, or move parts into reports.",
        )
    forbidden_in_text(text, field="text")
    return text


def current_text(rows: models.Manager[T], key: dict[str, Any]) -> T | None:
    """Return the text of an object with the person who saved it, or None."""
    return rows.filter(**key).select_related("saved_by").first()


def store_text(
    rows: models.Manager[T], key: dict[str, Any], *, by: User, text: str, version: int, code: str
) -> T:
    """Store the text that was edited from `version` (0 if there was none), in a transaction.

    Raises Conflict with `code` when somebody has saved another version meanwhile.
    """
    if version == 0:
        try:
            with transaction.atomic():
                rows.create(**key, text=text, saved_by=by)
        except IntegrityError:
            raise _changed(rows, key, version, code) from None
    else:
        updated = rows.filter(**key, version=version).update(
            text=text, version=F("version") + 1, saved_at=clock.now(), saved_by=by
        )
        if not updated:
            raise _changed(rows, key, version, code)
    return rows.select_related("saved_by").get(**key)


def _changed(rows: models.Manager[T], key: dict[str, Any], version: int, code: str) -> Conflict:
    current = current_text(rows, key)
    if current is None:
        return Conflict(
            f"Nothing was saved yet, so there is no version {version}.",
            code=code,
            field="version",
            next_step="Save with version 0 to create it.",
        )
    return Conflict(
        f"{current.saved_by.display_name} saved version {current.version} at "
        f"{current.saved_at:%Y-%m-%d %H:%M} UTC, after you had opened version {version}.",
        code=code,
        field="version",
        next_step=f"Read version {current.version}, merge your text, and save with its number.",
    )
