"""Choose a slug that neither clashes nor discloses whose slug it clashed with."""

import secrets
from typing import Any

from django.db.models import QuerySet

from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_slug, slug_from

_TAIL = "23456789abcdefghjkmnpqrstvwxyz"
# Words in URLs of the portal itself.
RESERVED = frozenset({"new", "api", "admin", "settings", "static", "login", "logout"})


def free_slug(
    everything: QuerySet[Any], visible: QuerySet[Any], name: str, requested: str | None
) -> str:
    """Return the slug to use for something called `name`.

    A slug of something the person can see is a Conflict. One of something hidden gets a random
    suffix instead, because an error would disclose that the other exists.
    """
    slug = clean_slug(requested) if requested else slug_from(name)
    if requested and slug in RESERVED:
        raise InvalidInput(
            f"The address {slug} is reserved for Slipway's own pages.",
            code="reserved_name",
            field="slug",
            next_step="Choose another address, or leave it out to have one generated.",
        )
    if not slug or slug in RESERVED:
        return _with_tail(slug or "untitled")
    if visible.filter(slug=slug).exists():
        if requested:
            raise Conflict(
                f"You already use the address {slug}.",
                code="slug_taken",
                field="slug",
                next_step="Choose another address, or use the existing one.",
            )
        return _with_tail(slug)
    return _with_tail(slug) if everything.filter(slug=slug).exists() else slug


def _with_tail(slug: str) -> str:
    tail = "".join(secrets.choice(_TAIL) for _ in range(5))
    return f"{slug[:42].rstrip('-')}-{tail}"
