"""Columns while they are read: their types, and how texts and JSON become values of them."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slipway.schemas.tables import MISSING_WORDS, ReadSettings
from slipway.schemas.truncation import shorten
from slipway.tables.json_values import (
    Misfit,
    Shape,
    as_declared,
    format_value,
    require_fit,
)
from slipway.tables.text_values import (
    EXACT_IN_DOUBLE,
    convert_declared,
    convert_exactly,
    declared_type,
    describe,
    infer_type,
    with_nulls_at,
)

_SCALARS: dict[Any, frozenset[type]] = {
    pa.int64(): frozenset({int, type(None)}),
    pa.uint64(): frozenset({int, type(None)}),
    pa.float64(): frozenset({int, float, type(None)}),
    pa.bool_(): frozenset({bool, type(None)}),
    pa.string(): frozenset({str, type(None)}),
}
BadValue = Callable[[int, str], None]


class Column:
    """A column and its type, which is None as long as there is no value.

    `is_settled` says that the type is final: values that do not fit are bad. Otherwise a type may
    still widen without loss, from whole numbers to larger ones or to fractions.
    """

    def __init__(self, name: str, settings: ReadSettings, kind: Any | None) -> None:
        self.name = name
        self.declaration = settings.types.get(name)
        self.is_settled = kind is not None or self.declaration is not None
        self.type = declared_type(self.declaration) if self.declaration else kind
        self.note = ""
        words = MISSING_WORDS if settings.missing is None else settings.missing
        self._words = pa.array(["", *words], pa.string())
        in_text = [""] if settings.missing is None else settings.missing
        self._words_in_text = pa.array(in_text, pa.string())
        self._low, self._high = 0, 0
        self._shape = Shape()

    @property
    def arrow_type(self) -> Any:
        """The type, string where it is not known yet."""
        return self.type if self.type is not None else pa.string()

    def advice(self) -> str:
        """Return the setting that decides."""
        return (
            "To read the column as it is written, declare its type: "
            f"{shorten(self.name, 120)}=string."
        )

    def from_texts(self, texts: Any, on_bad: BadValue) -> Any:
        """Return values for texts as a CSV file has them."""
        if self.type == pa.string():
            return self._as_text(texts)
        trimmed = pc.utf8_trim_whitespace(texts)
        is_missing = pc.is_in(trimmed, value_set=self._words)
        values = pc.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)
        if values.null_count == len(values):
            if self.type is None:
                # All of them are missing unless the column turns out to be text.
                return self._as_text(texts)
            return pa.nulls(len(values), self.type)
        if self.type is None:
            self.type, self.note = infer_type(values)
            if self.type == pa.string():
                return self._as_text(texts)
        if self.declaration:
            array, bad = convert_declared(values, self.type)
        else:
            array, bad = convert_exactly(values, self.type)
            if not self.is_settled:
                array, bad = self._widen(values, array, bad)
        for row in bad:
            on_bad(
                row,
                f"{shorten(values[row].as_py(), 120)!r} is not {describe(self.type)}, "
                "which the column "
                f"{'is declared to be' if self.declaration else 'has above'}. {self.advice()}",
            )
        return array

    def from_cells(self, texts: Any, kinds: Any, on_bad: BadValue) -> Any:
        """Return values for cells of Excel: their texts, and the kinds `text`, `number` …

        A text stays text, also one of digits, unless the column has a declared type.
        """
        if self.declaration or self.type == pa.string():
            return self.from_texts(texts, on_bad)
        is_missing = pc.is_in(pc.utf8_trim_whitespace(texts), value_set=self._words)
        is_value = pc.and_(pc.is_valid(texts), pc.invert(is_missing))
        is_text = pc.and_(is_value, pc.fill_null(pc.equal(kinds, "text"), False))
        if self.type is None:
            present = pc.unique(pc.filter(kinds, is_value)).to_pylist()
            if "text" in present or len(present) > 1:
                self.type = pa.string()
                if len(present) > 1:
                    self.note = f"Text, because its cells are of the kinds {', '.join(present)}."
                return self._as_text(texts)
            return self.from_texts(texts, on_bad)
        bad = pc.indices_nonzero(is_text).to_pylist()
        for row in bad:
            on_bad(
                row,
                f"The text {shorten(texts[row].as_py(), 120)!r} is in a column that has "
                f"{describe(self.type)} above. {self.advice()}",
            )
        return self.from_texts(with_nulls_at(texts, bad), on_bad)

    def _as_text(self, texts: Any) -> Any:
        is_missing = pc.is_in(texts, value_set=self._words_in_text)
        return pc.if_else(is_missing, pa.scalar(None, pa.string()), texts)

    def _widen(self, values: Any, array: Any, bad: list[int]) -> tuple[Any, list[int]]:
        """Widen a type of whole numbers where that loses nothing."""
        if not pa.types.is_integer(self.type):
            return array, bad
        if bad:
            misfitting = values.take(pa.array(bad))
            other, _note = infer_type(misfitting)
            highest = max(-self._low, self._high)
            if (other == pa.float64() and highest <= EXACT_IN_DOUBLE) or (
                other == pa.uint64() and self._low >= 0
            ):
                wider, still_bad = convert_exactly(values, other)
            else:
                wider, still_bad = array, bad
            if len(still_bad) < len(bad):
                self.type, array, bad = other, wider, still_bad
        if pa.types.is_integer(self.type) and array.null_count < len(array):
            ends = pc.min_max(array)
            self._low = min(self._low, ends["min"].as_py())
            self._high = max(self._high, ends["max"].as_py())
        return array, bad

    def from_values(self, values: Sequence[Any], on_bad: BadValue) -> Any:
        """Return an Arrow array of JSON's values. Those that do not fit are null in it."""
        if self.declaration:
            return self._declared_values(values, on_bad)
        if not self.is_settled:
            values = self._shaped(values, on_bad)
        kind = self.arrow_type
        if pa.types.is_timestamp(kind):
            return self._times(values, on_bad)
        allowed = _SCALARS.get(kind)
        if allowed is not None and allowed.issuperset(map(type, values)):
            try:
                return pa.array(values, kind)
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass
        return pa.array(self._fitting(values, on_bad), kind)

    def _fitting(self, values: Sequence[Any], on_bad: BadValue) -> list[Any]:
        kind = self.arrow_type
        fitting: list[Any] = []
        for row, value in enumerate(values):
            try:
                require_fit(value, kind)
            except Misfit as error:
                on_bad(row, f"{error} {self._advice_for_json()}")
                value = None
            is_whole = kind == pa.float64() and isinstance(value, int)
            fitting.append(float(value) if is_whole else value)
        return fitting

    def _advice_for_json(self) -> str:
        return f"To keep such values as JSON, declare the type: {shorten(self.name, 120)}=json."

    def _shaped(self, values: Sequence[Any], on_bad: BadValue) -> Sequence[Any]:
        """Widen the type by these values, and return them with None for those that cannot fit."""
        is_first = self.type is None
        kept: list[Any] = []
        for row, value in enumerate(values):
            try:
                self._shape.add(value)
            except Misfit as error:
                on_bad(row, f"{error} {self._advice_for_json()}")
                value = None
            kept.append(value)
        if self.type is not None and pa.types.is_timestamp(self.type):
            return kept
        kind = self._shape.type()
        self.type = None if kind == pa.null() else kind
        if is_first and self.type == pa.string():
            texts = pa.array(kept, pa.string())
            inferred, _note = infer_type(texts)
            if pa.types.is_timestamp(inferred):
                self.type = inferred
        return kept

    def _times(self, values: Sequence[Any], on_bad: BadValue) -> Any:
        texts = [value if isinstance(value, str) else None for value in values]
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, str):
                on_bad(row, f"{format_value(value)} is not {describe(self.type)}. {self.advice()}")
        array = pa.array([text and _clean(text) for text in texts], pa.string())
        times, bad = convert_exactly(array, self.type)
        for row in bad:
            on_bad(row, f"{format_value(texts[row])} is not {describe(self.type)}. {self.advice()}")
        return times

    def _declared_values(self, values: Sequence[Any], on_bad: BadValue) -> Any:
        assert self.declaration is not None  # noqa: S101 - the caller checked it
        fitting: list[Any] = []
        for row, value in enumerate(values):
            try:
                fitting.append(as_declared(value, self.declaration, self.type))
            except Misfit as error:
                on_bad(row, str(error))
                fitting.append(None)
        if not pa.types.is_temporal(self.type):
            return pa.array(fitting, self.type)
        texts = pa.array([text and _clean(text) for text in fitting], pa.string())
        array, bad = convert_declared(texts, self.type)
        for row in bad:
            on_bad(row, f"{format_value(fitting[row])} is not {describe(self.type)}.")
        return array

    def from_array(self, values: Any, on_bad: BadValue) -> Any:
        """Return an Arrow array of another type as one of this column's, without loss."""
        if values.type == self.type:
            return values
        try:
            return pc.cast(values, self.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
        pieces = []
        for row in range(len(values)):
            value = values.slice(row, 1)
            try:
                pieces.append(pc.cast(value, self.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                on_bad(
                    row,
                    f"{shorten(str(value[0]), 120)} does not fit into {self.type} without loss.",
                )
                pieces.append(pa.nulls(1, self.type))
        return pa.concat_arrays(pieces)


def _clean(text: str) -> str:
    """Return a text that UTF-8 can encode. A text that was not valid is no time either."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
