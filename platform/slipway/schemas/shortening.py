"""Shortening text that people read, so that it says how much of it is missing."""


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, with the number there were where it is cut."""
    if len(text) <= limit:
        return text
    note = f" … (the beginning of {len(text):,} characters)"
    return text[: max(0, limit - len(note))] + note[-limit:]
