"""Lists that fetch their pages while they are read."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from slipway.connection import Connection, Query
from slipway.errors import UnexpectedAnswer
from slipway.schemas.base import AnswerSchema, PageOf

Item = TypeVar("Item", bound=AnswerSchema)


class Pages(Generic[Item]):
    """List on the server, newest first. Iterating fetches one page after another.

    Nothing is fetched before the first item is needed. Each iteration starts anew.
    """

    def __init__(
        self,
        connection: Connection,
        segments: tuple[str, ...],
        schema: type[PageOf[Item]],
        filters: Query | None = None,
    ) -> None:
        self._connection = connection
        self._segments = segments
        self._schema = schema
        self._filters = dict(filters or {})

    def __repr__(self) -> str:
        return f"<slipway.Pages /{'/'.join(self._segments)}>"

    def page(self, *, cursor: str | None = None, limit: int | None = None) -> PageOf[Item]:
        """Return one page of at most `limit` items (1 to 200, by default the server's 50).

        Without `cursor` it is the first. Pass a page's `next_cursor` for the page after it.
        """
        query = {**self._filters, "cursor": cursor, "limit": limit}
        return self._connection.fetch(self._schema, "GET", *self._segments, query=query)

    def __iter__(self) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            page = self.page(cursor=cursor)
            yield from page.items
            if page.next_cursor is None:
                return
            if page.next_cursor == cursor:
                raise UnexpectedAnswer(
                    "The server's list does not advance: a page names itself as the next one.",
                    next_step="Report this to who runs the server.",
                )
            cursor = page.next_cursor
