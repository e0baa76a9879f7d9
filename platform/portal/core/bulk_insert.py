"""Bulk insert of rows of one shape, where the ORM's cost per row would dominate.

Unlike `bulk_create` it supports no expressions as values and returns no instances.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections, router
from django.db.models import AutoField, Field, Model

_PLAIN = (str, int, float, type(None))


def insert_rows(model: type[Model], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows given as values of `columns` (attribute names). Other columns get defaults.

    A default is computed once for all rows, except the primary key's, which is made for each, here
    or by the database.
    """
    alias = router.db_for_write(model)
    connection = connections[alias]
    meta = model._meta  # noqa: SLF001  (Django's public way to a model's fields)
    fields: dict[str, Field[Any, Any]] = {field.attname: field for field in meta.concrete_fields}
    key = meta.pk
    given = [fields.pop(name) for name in columns]
    fills_key = fields.pop(key.attname, None) is not None and not isinstance(key, AutoField)
    constant = [
        field.get_db_prep_save(field.get_default(), connection) for field in fields.values()
    ]
    prepared: dict[tuple[int, Any], Any] = {}

    def prepare(at: int, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if not isinstance(value, list | dict):
            if (at, value) not in prepared:
                prepared[at, value] = given[at].get_db_prep_save(value, connection)
            return prepared[at, value]
        return given[at].get_db_prep_save(value, connection)

    quote = connection.ops.quote_name
    names = [str(field.column) for field in ([key] if fills_key else [])]
    names += [str(field.column) for field in (*given, *fields.values())]
    sql = (
        f"INSERT INTO {quote(meta.db_table)} ({', '.join(quote(name) for name in names)}) "  # noqa: S608
        f"VALUES ({', '.join(['%s'] * len(names))})"
    )
    parameters = [
        [
            *([key.get_default()] if fills_key else []),
            *(prepare(at, value) for at, value in enumerate(row)),
            *constant,
        ]
        for row in rows
    ]
    if parameters:
        with connection.cursor() as cursor:
            cursor.executemany(sql, parameters)
