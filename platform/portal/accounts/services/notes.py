"""Services for notes about the objects of a project."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import ObjectNote, Project, User
from portal.accounts.noted import NotedObject
from portal.accounts.services.texts import clean_markdown, current_text, store_text
from slipway.schemas.accounts import MOST_NOTE_CHARACTERS


def note_of(project: Project, kind: str, target: str) -> ObjectNote | None:
    """Return the notes about an object, by its id, with the person who saved them, or None."""
    return current_text(ObjectNote.objects, {"project": project, "kind": kind, "target": target})


def save_note(
    *, project: Project, noted: NotedObject, by: User, text: str, version: int
) -> ObjectNote:
    """Save the notes that were edited from `version` (0 if there were none).

    Raises Conflict when somebody has saved another version meanwhile, InvalidInput for a text that
    is too long or has a character that cannot be stored.
    """
    text = clean_markdown(text, noun="The text", most=MOST_NOTE_CHARACTERS)
    key = {"project": project, "kind": noted.kind.name, "target": noted.id}
    with transaction.atomic():
        note = store_text(
            ObjectNote.objects, key, by=by, text=text, version=version, code="note_changed"
        )
        audit.record(
            "note.save",
            kind="note",
            target=note,
            label=f"{noted.kind.noun} {noted.label}",
            project=project,
            before={"version": version},
            after={"version": note.version, "characters": len(text)},
        )
    return note
