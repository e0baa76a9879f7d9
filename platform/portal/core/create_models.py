"""Migration operation that creates many tables at once."""

import contextlib
from collections.abc import Sequence

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class CreateModels(Operation):
    """A list of `CreateModel` operations, in any order, for a new installation.

    Django renders every model that is related to a changed one again for every operation. On an
    empty database that is most of the time of the first start. Here they are rendered once, when
    the state contains all of them.
    """

    reduces_to_sql = True

    def __init__(self, operations: Sequence[CreateModel]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Add the models to the state, and drop its rendered models."""
        with contextlib.suppress(AttributeError):
            del state.apps
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Create the tables. The targets of their foreign keys may come later in the list."""
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Drop the tables, the last first."""
        for operation in reversed(self.operations):
            operation.database_backwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        """Name the models."""
        return "Create models " + ", ".join(operation.name for operation in self.operations)
