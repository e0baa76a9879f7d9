"""Requests for models that take named arrays: TorchScript, torch.export, ONNX."""

import csv
import io
import re
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from slipway.schemas.serving import Datatype, FieldSpec, Signature
from workers.model_server.arrays import (
    DTYPES,
    Array,
    array_of,
    check_shape,
    input_error,
    largest_exact_integer,
)
from workers.model_server.codecs import Batch
from workers.model_server.errors import BadInput
from workers.model_server.infer import read_infer
from workers.model_server.json_text import check_params, read_scoring
from workers.model_server.plain import dumps
from workers.serving.wire import Contract, RequestFrame

_WHOLE: Final = re.compile(r"\s*[+-]?\d{1,400}\s*", re.ASCII)
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}
_QUICK: Final = b'{"inputs":'
_QUICK_BYTES: Final = len(_QUICK)
# Format characters of `struct` by type.
_PACKING: Final = {"f4": "f", "f8": "d", "i4": "i", "i8": "q"}


class TensorCodec:
    """Reads requests into arrays by name."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._inputs = {spec.name: spec for spec in signature.inputs}
        self._only: FieldSpec | None = signature.inputs[0] if len(signature.inputs) == 1 else None
        self._quick: FieldSpec | None = None
        self.row: Array | None = None
        only = self._only
        if only and len(only.shape) == 2 and only.shape[1] > 0:
            kind = DTYPES[only.datatype].kind
            # Values that an array would coerce take the general path, which checks each of them.
            self._suspicious = (b'"', b"l", b"t") + ((b".", b"e", b"E") if kind in "iu" else ())
            packing = _PACKING.get(DTYPES[only.datatype].str[1:])
            if packing is not None:
                self._quick = only
                self._row = struct.Struct(f"<{only.shape[1]}{packing}")
                self._dtype = DTYPES[only.datatype]
                # Larger integers may be rounded. The general path accepts those that are exact.
                self._exact = largest_exact_integer(only.datatype) if kind == "f" else None
                self.row = np.zeros((1, only.shape[1]), self._dtype)
                self._row_memory = self.row.data

    def read_row(self, request_frame: RequestFrame) -> bool:
        """Write the only row of a plain request into `row`. Return False for any other request.

        For a single client each step runs with cold processor caches and costs three times as much,
        so there are as few as possible.
        """
        _, contract, _, body = request_frame
        if contract or self.row is None or not body.startswith(_QUICK):
            return False
        for sign in self._suspicious:
            if body.find(sign, _QUICK_BYTES) >= 0:
                return False
        try:
            (values,) = orjson.loads(body)["inputs"]
            self._row.pack_into(self._row_memory, 0, *values)
            if self._exact is not None:
                return bool(-self._exact < min(values) and max(values) < self._exact)
        except (orjson.JSONDecodeError, struct.error, TypeError, ValueError, OverflowError):
            return False
        return True

    def read_many(self, bodies: Sequence[bytes]) -> tuple[dict[str, Array], list[int]] | None:
        """Return one array for scoring requests and their row counts. None if any is not plain."""
        only = self._quick
        if only is None:
            return None
        pack = self._row.pack
        rows: list[bytes] = []
        counts = []
        texts = []
        try:
            for body in bodies:
                if not body.startswith(_QUICK):
                    return None
                texts.append(body[_QUICK_BYTES:])
                values = orjson.loads(body)["inputs"]
                if type(values) is not list:
                    return None
                counts.append(len(values))
                # Raises for values of other types and for rows of another length. Parsed rows
                # are freed immediately, so that the next one reuses cached memory.
                for row in values:
                    rows.append(pack(*row))  # noqa: PERF401
        except (orjson.JSONDecodeError, struct.error, TypeError, OverflowError):
            return None
        together = b"".join(texts)
        for sign in self._suspicious:
            if sign in together:
                return None
        array = np.frombuffer(bytearray().join(rows), self._dtype)
        if self._exact is not None and array.size:
            is_exact = -self._exact < array.min() and array.max() < self._exact
            if not is_exact:
                return None
        return {only.name: array.reshape(len(rows), only.shape[1])}, counts

    def read(self, request_frame: RequestFrame) -> Batch:
        """Return the parsed request. Raises BadInput."""
        infer = None
        if request_frame.contract == Contract.INFER:
            arrays, infer, params = read_infer(request_frame)
        elif request_frame.contract == Contract.SCORING_CSV:
            arrays, params = self._from_csv(request_frame.body), {}
        else:
            key, value, params = read_scoring(request_frame.body)
            arrays = self._from_scoring(key, value)
        check_params(params, self._signature.params)
        arrays = self._check_inputs(arrays)
        rows = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
        if len(rows) != 1:
            raise BadInput(f"The inputs have different numbers of rows: {sorted(rows)}.")
        kinds = tuple((name, a.dtype.str, a.shape[1:]) for name, a in sorted(arrays.items()))
        return Batch(arrays, rows.pop(), (kinds, dumps(params)), params, infer)

    def join(self, batches: Sequence[Batch]) -> dict[str, Array]:
        """Return several batches with equal keys as one."""
        if len(batches) == 1:
            return dict(batches[0].inputs)
        names = batches[0].inputs
        return {name: np.concatenate([batch.inputs[name] for batch in batches]) for name in names}

    def _check_inputs(self, arrays: dict[str, Array]) -> dict[str, Array]:
        if not self._inputs:
            return arrays
        checked = {}
        for name, spec in self._inputs.items():
            if name not in arrays:
                if spec.required:
                    there = ", ".join(arrays) or "none"
                    raise input_error(
                        name,
                        f"is missing; {spec.datatype.value} of the shape {spec.shape} was expected,"
                        f" and there is: {there}",
                    )
                continue
            array = arrays[name]
            if array.dtype != DTYPES[spec.datatype]:
                array = array_of(name, array, spec.datatype)
            if array.shape == (0,) and len(spec.shape) > 1:
                array = array.reshape([0, *(max(length, 0) for length in spec.shape[1:])])
            check_shape(spec, array)
            checked[name] = array
        return checked

    def _from_scoring(self, key: str, value: Any) -> dict[str, Array]:
        match key:
            case "inputs":
                return self._from_inputs(value)
            case "instances":
                if not isinstance(value, list):
                    raise BadInput("`instances` is not a list.")
                if value and isinstance(value[0], dict):
                    return self._from_records(value, key)
                return self._single(value)
            case "dataframe_records":
                return self._from_records(value, key)
        return self._from_split(value)

    def _from_inputs(self, value: Any) -> dict[str, Array]:
        if isinstance(value, dict):
            return {str(name): self._array(str(name), values) for name, values in value.items()}
        if not isinstance(value, list):
            raise BadInput("`inputs` is neither a list of rows nor an object of inputs by name.")
        return self._single(value)

    def _single(self, values: list[Any]) -> dict[str, Array]:
        if len(self._inputs) > 1:
            names = ", ".join(self._inputs)
            raise BadInput(
                f"The model has {len(self._inputs)} inputs, but they have no names here.",
                next_step=f"Send an object with {names}.",
            )
        name = self._only.name if self._only else "input"
        return {name: self._array(name, values)}

    def _from_records(self, value: Any, key: str) -> dict[str, Array]:
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise BadInput(f"`{key}` is not a list of objects.")
        names = list(value[0]) if value else []
        try:
            columns = {name: [row[name] for row in value] for name in names}
        except KeyError as missing:
            raise input_error(str(missing.args[0]), "is missing in a later row") from None
        return self._from_columns(columns)

    def _from_split(self, value: Any) -> dict[str, Array]:
        if not isinstance(value, dict) or not isinstance(value.get("data"), list):
            raise BadInput("`dataframe_split` is not an object with `columns` and `data`.")
        data = value["data"]
        names = value.get("columns")
        if names is None:
            return self._single(data)
        if not isinstance(names, list):
            raise BadInput("`dataframe_split.columns` is not a list.")
        if any(not isinstance(row, list) or len(row) != len(names) for row in data):
            raise BadInput(f"A row of `data` does not have {len(names)} values, as `columns` has.")
        return self._from_columns(
            {str(name): [row[at] for row in data] for at, name in enumerate(names)}
        )

    def _from_columns(self, columns: dict[str, list[Any]]) -> dict[str, Array]:
        only = self._only
        if only and only.name not in columns and len(only.shape) == 2:
            rows = [list(row) for row in zip(*columns.values(), strict=True)]
            return {only.name: self._array(only.name, rows)}
        return {name: self._array(name, values) for name, values in columns.items()}

    def _from_csv(self, body: bytes) -> dict[str, Array]:
        try:
            lines = list(csv.reader(io.StringIO(body.decode())))
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"The body is not CSV: {error}.") from None
        if not lines:
            raise BadInput("The body is empty; expected a line of column names.")
        names, data = lines[0], [line for line in lines[1:] if line]
        if any(len(row) != len(names) for row in data):
            raise BadInput(f"A line does not have {len(names)} values, as the first line has.")
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadInput(f"The column {twice[0]!r} appears twice.")
        return self._from_columns(
            {name: self._typed(name, [row[at] for row in data]) for at, name in enumerate(names)}
        )

    def _typed(self, name: str, column: list[str]) -> list[Any]:
        """Parse a CSV column as its input's type. Cells that do not parse remain text."""
        spec = self._inputs.get(name) or self._only
        if spec is None:
            numbers = [_number(text) for text in column]
            return column if any(isinstance(number, str) for number in numbers) else numbers
        kind = DTYPES[spec.datatype].kind
        if kind == "O":
            return list(column)
        if kind == "b":
            return [_TRUTHS.get(text.strip().lower(), text) for text in column]
        return [_number(text) for text in column]

    def _array(self, name: str, values: Any) -> Array:
        spec = self._inputs.get(name)
        if spec is not None:
            return array_of(name, values, spec.datatype)
        try:
            array = np.asarray(values)
        except (ValueError, OverflowError):
            raise input_error(name, "has rows of different lengths") from None
        if array.dtype.kind == "U":
            return array.astype(object)
        if array.dtype.kind not in "iufb":
            return array_of(name, values, Datatype.FP32)
        return array_of(name, values, Datatype.FP32) if array.dtype == np.float64 else array


def _number(text: str) -> Any:
    """Parse a CSV cell as an exact number. Return None if empty, and the text if not a number."""
    if text == "":
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return text if "_" in text else float(text)
    except ValueError:
        return text
