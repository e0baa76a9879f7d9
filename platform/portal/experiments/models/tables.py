"""Base of the models of MLflow's tables. MLflow defines them, we read and write their rows."""

from typing import ClassVar

from django.db import models

# Alias of their database in DATABASES.
DATABASE = "tracking"


class TrackingTable(models.Model):
    """A table of MLflow's schema. `prepare` creates it, and Django's migrations never touch it.

    A tenant is a *workspace* there: the id of a project. There is no foreign key from here to the
    portal's own tables, which may be in another database.
    """

    class Meta:
        abstract = True
        managed = False


class DatabaseRouter:
    """Routes MLflow's tables to their database, and refuses Django's migrations there."""

    tables: ClassVar[type[models.Model]] = TrackingTable

    def db_for_read(self, model: type[models.Model], **_hints: object) -> str | None:
        """Return where a model is read, or None when it is none of ours."""
        return DATABASE if issubclass(model, self.tables) else None

    db_for_write = db_for_read

    def allow_relation(self, item: models.Model, other: models.Model, **_hints: object) -> bool:
        """Return whether two rows may be related: both are in the same database."""
        return isinstance(item, self.tables) == isinstance(other, self.tables)

    def allow_migrate(self, db: str, _app_label: str, **_hints: object) -> bool | None:
        """Refuse every migration of MLflow's database. Return None for other databases."""
        return False if db == DATABASE else None
