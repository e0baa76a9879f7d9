"""Base model of every table: a prefixed, time-sortable id and the time of creation."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models

from portal.core import clock
from portal.core.ids import ID_MAX_LENGTH, new_id

if TYPE_CHECKING:
    _TextKey = models.CharField[str, str]
else:  # Django's fields cannot be subscripted when they run
    _TextKey = models.CharField


class IdField(_TextKey):
    """A text primary key made by `new_id(prefix)` when the object is constructed."""

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        kwargs.update(primary_key=True, max_length=ID_MAX_LENGTH, editable=False)
        kwargs.pop("default", None)
        super().__init__(default=self._make, **kwargs)

    def _make(self) -> str:
        return new_id(self.prefix)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        for implied in ("primary_key", "max_length", "editable", "default"):
            kwargs.pop(implied, None)
        return name, path, [self.prefix, *args], kwargs


class Row(models.Model):
    """Base of our tables. Subclasses declare `id = IdField("…")`."""

    created_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        abstract = True
        ordering: ClassVar[list[str]] = ["-pk"]
