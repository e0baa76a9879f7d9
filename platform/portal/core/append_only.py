"""Append-only tables: the database itself refuses to change, remove or replace their rows."""

from collections.abc import Iterator, Sequence

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

# SQLite answers a conflict under OR REPLACE by removing the older row, and fires no DELETE trigger
# for it unless a pragma of the connection says so. Every connection runs BEFORE INSERT triggers.
# `rowid` is a separate key: -1 there means that the statement did not name it.
_SQLITE = """
CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}
WHEN EXISTS (SELECT 1 FROM {table} WHERE rowid = NEW.rowid){exists}
BEGIN SELECT RAISE(ABORT, '{message}'); END
"""
_EXISTS = " OR EXISTS (SELECT 1 FROM {table} WHERE {match})"
_SQLITE_CHANGE = """
CREATE TRIGGER {table}_no_{verb} BEFORE {VERB} ON {table}{when}
BEGIN SELECT RAISE(ABORT, '{message}'); END
"""
_POSTGRES = """
CREATE FUNCTION {table}_refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '{message}'; END $$;
"""
_POSTGRES_ROW = """
CREATE TRIGGER {table}_refuse_{verb} BEFORE {VERB} ON {table}
FOR EACH ROW{when} EXECUTE FUNCTION {table}_refuse_change();
"""
_POSTGRES_TRUNCATE = """
CREATE TRIGGER {table}_refuse_truncate BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse_change();
"""


def _columns(model: type[Model], fields: Sequence[str]) -> list[str]:
    """Return the columns of fields, in the order of `fields`."""
    columns = {field.name: str(field.column) for field in model._meta.concrete_fields}  # noqa: SLF001
    return [columns[name] for name in fields]


def _unique_keys(model: type[Model]) -> list[list[str]]:
    """Return the columns of every unique key, except those that depend on a condition."""
    options = model._meta  # noqa: SLF001 - the documented way to a model's fields
    keys = [[str(field.column)] for field in options.concrete_fields if field.unique]
    keys += [_columns(model, constraint.fields) for constraint in options.total_unique_constraints]
    return keys + [_columns(model, names) for names in options.unique_together]


class RefuseReplacing(Operation):
    """Refuse to replace rows, for tables whose triggers refuse UPDATE and DELETE already.

    On SQLite this is `INSERT OR REPLACE` in all its spellings, on PostgreSQL TRUNCATE.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(self, model: str, message: str) -> None:
        self.model = model
        self.message = message

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Do nothing, since triggers are not part of the state."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Create the triggers."""
        model = to_state.apps.get_model(app_label, self.model)
        is_postgres = schema_editor.connection.vendor == "postgresql"
        for statement in self._postgres(model) if is_postgres else self._sqlite(model):
            schema_editor.execute(statement, params=None)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Drop the triggers."""
        table = from_state.apps.get_model(app_label, self.model)._meta.db_table  # noqa: SLF001
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.execute(f"DROP FUNCTION {table}_refuse_change() CASCADE")
            return
        for verb in self._sqlite_verbs():
            schema_editor.execute(f"DROP TRIGGER {table}_no_{verb}")

    def describe(self) -> str:
        """Name the table."""
        return f"Refuse to replace rows of {self.model}"

    def _sqlite_verbs(self) -> tuple[str, ...]:
        return ("replace",)

    def _sqlite(self, model: type[Model]) -> Iterator[str]:
        table = model._meta.db_table  # noqa: SLF001
        exists = "".join(
            _EXISTS.format(table=table, match=" AND ".join(f"{name} = NEW.{name}" for name in key))
            for key in _unique_keys(model)
        )
        yield _SQLITE.format(table=table, exists=exists, message=self.message)

    def _postgres(self, model: type[Model]) -> Iterator[str]:
        table = model._meta.db_table  # noqa: SLF001
        yield _POSTGRES.format(table=table, message=self.message)
        yield _POSTGRES_TRUNCATE.format(table=table)


class AppendOnly(RefuseReplacing):
    """Refuse to change, remove or replace rows. Columns that are `mutable` may change."""

    def __init__(self, model: str, message: str, mutable: Sequence[str] = ()) -> None:
        super().__init__(model, message)
        self.mutable = tuple(mutable)

    def describe(self) -> str:
        """Name the table."""
        return f"Refuse to change or remove rows of {self.model}"

    def _fixed(self, model: type[Model]) -> list[str]:
        fields = model._meta.concrete_fields  # noqa: SLF001
        return [str(field.column) for field in fields if field.name not in self.mutable]

    def _sqlite_verbs(self) -> tuple[str, ...]:
        return ("replace", "update", "delete")

    def _sqlite(self, model: type[Model]) -> Iterator[str]:
        yield from super()._sqlite(model)
        table = model._meta.db_table  # noqa: SLF001
        changed = [f"OLD.{name} IS NOT NEW.{name}" for name in (*self._fixed(model), "rowid")]
        for verb, when in (("update", f" WHEN {' OR '.join(changed)}"), ("delete", "")):
            yield _SQLITE_CHANGE.format(
                table=table,
                verb=verb,
                VERB=verb.upper(),
                when=when if self.mutable else "",
                message=self.message,
            )

    def _postgres(self, model: type[Model]) -> Iterator[str]:
        yield from super()._postgres(model)
        table = model._meta.db_table  # noqa: SLF001
        changed = [f"OLD.{name} IS DISTINCT FROM NEW.{name}" for name in self._fixed(model)]
        for verb, when in (("update", f" WHEN ({' OR '.join(changed)})"), ("delete", "")):
            yield _POSTGRES_ROW.format(
                table=table, verb=verb, VERB=verb.upper(), when=when if self.mutable else ""
            )
