"""MLflow models: any flavour with a python_function, sklearn and pytorch among them.

Requests for a signature are read by us, in one way for all shapes, so that a model gets exactly
what was sent. Those for a model without one are read by MLflow's own scoring code.
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from mlflow import pyfunc
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc.scoring_server import infer_and_parse_data, parse_csv_input
from mlflow.types.schema import Array, ColSpec, DataType, ParamSpec, TensorSpec

from slipway.schemas.problem import FieldError
from slipway.schemas.serving import Datatype, FieldSpec, Signature
from workers.model_server.arrays import DTYPES, datatype_of
from workers.model_server.codecs import Batch
from workers.model_server.errors import BadInput, one_line, quote_value
from workers.model_server.formats.mlflow_columns import ColumnReader, Mismatch, convert
from workers.model_server.infer import read_infer
from workers.model_server.json_text import check_params, read_scoring
from workers.model_server.tensors import TensorCodec
from workers.serving.wire import Contract, RequestFrame

_COLUMN_TYPES: Final = {
    "boolean": Datatype.BOOL,
    "integer": Datatype.INT32,
    "long": Datatype.INT64,
    "float": Datatype.FP32,
    "double": Datatype.FP64,
}


class MlflowModel:
    """A python_function model. What its schema refuses is the client's fault."""

    platform = "mlflow"

    def __init__(self, model: Any, signature: Signature) -> None:
        self.signature = signature
        self.codec = MlflowCodec(signature, model.metadata)
        self._model = model
        if self.codec.is_exact:
            # MLflow would check tables again, and refuse or convert missing values.
            model.metadata.signature.inputs = None

    def predict(self, inputs: Any, params: dict[str, Any]) -> Any:
        """Return the predictions.

        Raises BadInput if MLflow's own schema check refuses the input.
        """
        try:
            return self._model.predict(inputs, params=params or None)
        except MlflowException as error:
            if "schema" in error.message.lower():
                raise BadInput(one_line(error.message)) from None
            raise


class MlflowCodec:
    """Reads requests into tables or arrays."""

    def __init__(self, signature: Signature, metadata: Any) -> None:
        self._signature = signature
        self._schema = metadata.get_input_schema()
        self._reader: ColumnReader | None = None
        self._tensors: TensorCodec | None = None
        schema = metadata.get_params_schema()
        self._params: dict[str, Any] = (
            {param.name: param for param in schema.params} if schema else {}
        )
        # Models with type hints validate their inputs themselves.
        if self._schema is None or metadata._is_signature_from_type_hint():  # noqa: SLF001
            return
        if not self._schema.is_tensor_spec():
            self._reader = ColumnReader(self._schema)
        elif all(np.dtype(spec.type).kind in "biuf" for spec in self._schema.inputs):
            self._tensors = TensorCodec(signature)

    @property
    def is_exact(self) -> bool:
        """Return whether tables are read by the signature here and need no other check."""
        return self._reader is not None

    def read(self, request_frame: RequestFrame) -> Batch:
        """Return the parsed request. Raises BadInput."""
        if self._tensors is not None:
            batch = self._tensors.read(request_frame)
            batch.inputs = self._unwrap_single(batch.inputs)
            batch.params = self._checked_params(batch.params)
            return batch
        infer = None
        if request_frame.contract == Contract.INFER:
            raw = self._reader.binary_names() if self._reader is not None else frozenset()
            arrays, infer, params = read_infer(request_frame, raw_names=raw)
            inputs = self._from_arrays(arrays)
        elif request_frame.contract == Contract.SCORING_CSV:
            inputs, params = self._from_csv(request_frame.body), {}
        else:
            key, value, params = read_scoring(request_frame.body)
            inputs = self._from_scoring(key, value)
        params = self._checked_params(params)
        rows, key_ = _kind(inputs)
        written = json.dumps(params, sort_keys=True, default=str)
        return Batch(inputs, rows, (key_, written), params, infer)

    def join(self, batches: Sequence[Batch]) -> Any:
        """Return several batches with equal keys as one."""
        parts = [batch.inputs for batch in batches]
        if len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], pd.DataFrame):
            return pd.concat(parts, ignore_index=True)
        if isinstance(parts[0], dict):
            return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return np.concatenate(parts)

    def _unwrap_single(self, arrays: dict[str, Any]) -> Any:
        return next(iter(arrays.values())) if len(self._signature.inputs) == 1 else arrays

    def _checked_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return params converted to their types. Raises BadInput."""
        check_params({name: None for name in params if name not in self._params}, [], self._params)
        checked_params = {}
        for name, value in params.items():
            spec = self._params[name]
            try:
                checked_params[name] = _param(value, spec)
            except Mismatch as error:
                at = f" at {error.at}" if error.at else ""
                message = f"is {quote_value(error.value)}{at}; {error.expected} was expected"
                message += f": {error.reason}" if error.reason else ""
                fault = FieldError(field=f"params.{name}", message=message)
                raise BadInput(f"Param {name!r} {message}.", [fault]) from None
        return checked_params

    def _from_scoring(self, key: str, value: Any) -> Any:
        if self._reader is not None:
            columns, index = columns_of(key, value, self._reader)
            return self._reader.read(columns, index)
        try:
            return infer_and_parse_data({key: value}, self._schema)
        except MlflowException as error:
            raise BadInput(one_line(error.message)) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"`{key}` cannot be read: {one_line(error)}.") from None

    def _from_csv(self, body: bytes) -> Any:
        if self._reader is None:
            try:
                return parse_csv_input(io.StringIO(body.decode()), self._schema)
            except (MlflowException, UnicodeDecodeError) as error:
                raise BadInput(f"The body is not CSV: {one_line(error)}") from None
        names, rows = read_csv(body)
        reader = self._reader
        if not reader.has_names:
            names = [str(at) for at in range(len(names))]
        return reader.read(
            {name: reader.parse(name, [row[at] for row in rows]) for at, name in enumerate(names)}
        )

    def _from_arrays(self, arrays: dict[str, Any]) -> Any:
        if self._reader is None:
            return pd.DataFrame({name: array.reshape(-1) for name, array in arrays.items()})
        scalars = {
            signature_column.name
            for signature_column in self._reader.columns
            if isinstance(signature_column.type, DataType)
        }
        columns = {
            name: (array.reshape(-1) if name in scalars else array).tolist()
            for name, array in arrays.items()
        }
        _check_lengths(columns)
        return self._reader.read(columns)


def _param(value: Any, spec: Any) -> Any:
    if value is None or not isinstance(spec.dtype, DataType):
        return value
    if spec.shape is None:
        return _param_value(convert(value, spec.dtype))
    return [_param_value(item) for item in convert(value, Array(spec.dtype))]


def _param_value(value: Any) -> Any:
    # MLflow expects datetimes of params as strings and parses them itself.
    return value.isoformat() if isinstance(value, pd.Timestamp) else value


def read_csv(body: bytes) -> tuple[list[str], list[list[str]]]:
    """Return the names in the first line of CSV, and the rows. Raises BadInput."""
    try:
        lines = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"The body is not CSV: {one_line(error)}.") from None
    if not lines:
        raise BadInput("The body is empty; expected a line of column names.")
    names = lines[0]
    rows = [line for line in lines[1:] if line or len(names) == 1]
    rows = [line or [""] for line in rows]
    _check_names(names)
    for at, row in enumerate(rows):
        if len(row) != len(names):
            raise BadInput(
                f"Row {at} has {len(row)} values; the first line has {len(names)} names."
            )
    return names, rows


def _check_names(names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise BadInput(f"The column {twice[0]!r} appears twice.")


def _check_lengths(columns: dict[str, list[Any]]) -> None:
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        join = ", ".join(f"{name!r} has {count}" for name, count in list(counts.items())[:20])
        raise BadInput(f"The inputs have different numbers of rows: {join}.")


def _kind(inputs: Any) -> tuple[int, Any]:
    if isinstance(inputs, pd.DataFrame):
        if not isinstance(inputs.index, pd.RangeIndex):
            return len(inputs), object()  # merging would lose the index
        return len(inputs), ("table", tuple(inputs.columns), tuple(map(str, inputs.dtypes)))
    if isinstance(inputs, dict):
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        rows = {array.shape[0] if array.ndim else 1 for array in arrays.values()}
        kinds = tuple((name, a.dtype.str, a.shape[1:]) for name, a in arrays.items())
        return (rows.pop(), ("arrays", kinds)) if len(rows) == 1 else (1, object())
    array = np.asarray(inputs)
    return (array.shape[0] if array.ndim else 1), ("array", array.dtype.str, array.shape[1:])


def columns_of(
    key: str, value: Any, reader: ColumnReader
) -> tuple[dict[str, list[Any]], list[Any] | None]:
    """Return the columns and the index of a body in one of MLflow's four formats.

    Raises BadInput.
    """
    if key == "dataframe_split":
        return _split(value)
    if key == "dataframe_records" or (key == "instances" and _is_records(value)):
        return _records(key, value), None
    if key == "inputs" and isinstance(value, dict):
        return _by_name(value, reader), None
    if _is_records(value):
        return _records(key, value), None
    return _unnamed(key, value, reader), None


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _split(value: Any) -> tuple[dict[str, list[Any]], list[Any] | None]:
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise BadInput("`dataframe_split` is not an object with `columns` and `data`.")
    if unknown := sorted(set(value) - {"columns", "data", "index"}):
        raise BadInput(f"`dataframe_split` has no {unknown[0]!r}; it has columns, data and index.")
    names, data, index = value.get("columns"), value["data"], value.get("index")
    if names is None:
        width = len(data[0]) if data and isinstance(data[0], list) else 0
        names = [str(at) for at in range(width)]
    if not isinstance(names, list):
        raise BadInput("`dataframe_split.columns` is not a list.")
    names = [str(name) for name in names]
    _check_names(names)
    for at, row in enumerate(data):
        if not isinstance(row, list) or len(row) != len(names):
            count = f"{len(row)} values" if isinstance(row, list) else "not a list of values"
            raise BadInput(f"Row {at} of `data` has {count}; `columns` has {len(names)}.")
    if index is not None and not isinstance(index, list):
        raise BadInput("`dataframe_split.index` is not a list.")
    return {name: [row[at] for row in data] for at, name in enumerate(names)}, index


def _records(key: str, value: Any) -> dict[str, list[Any]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadInput(f"`{key}` is not a list of objects.")
    names = dict.fromkeys(name for row in value for name in row)
    return {name: [row.get(name) for row in value] for name in names}


def _by_name(value: dict[str, Any], reader: ColumnReader) -> dict[str, list[Any]]:
    """Return inputs by name: lists of values, or the values of one row."""
    depths = {column.name: depth_of(column.type) for column in reader.columns}
    columns = {
        name: part if isinstance(part, list) and _depth(part) > depths.get(name, 0) else [part]
        for name, part in value.items()
    }
    _check_lengths(columns)
    return columns


def depth_of(kind: Any) -> int:
    """Return how deep lists are nested in one value of a type."""
    return 1 + depth_of(kind.dtype) if isinstance(kind, Array) else 0


def _depth(value: Any) -> int:
    if not isinstance(value, list):
        return 0
    return 1 + max(map(_depth, value), default=0)


def _unnamed(key: str, value: Any, reader: ColumnReader) -> dict[str, list[Any]]:
    """Return values without names: those of the only column, or rows of all columns."""
    if len(reader.columns) == 1:
        (column,) = reader.columns
        deep = isinstance(value, list) and _depth(value) > depth_of(column.type)
        values = value if deep else [value]
        if not reader.has_names and all(
            isinstance(item, list) and len(item) == 1 for item in values
        ):
            values = [item[0] for item in values]
        return {column.name: values}
    if reader.has_names:
        names = ", ".join(column.name for column in reader.columns)
        raise BadInput(
            f"The values of `{key}` have no names, but the model has {len(reader.columns)} "
            "columns.",
            next_step=f"Send objects with {names}.",
        )
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise BadInput(f"`{key}` is not a list of rows.")
    width = len(value[0]) if value else len(reader.columns)
    for at, row in enumerate(value):
        if len(row) != width:
            raise BadInput(f"Row {at} of `{key}` has {len(row)} values; the first has {width}.")
    return {str(at): [row[at] for row in value] for at in range(width)}


def load(path: Path, signature: Signature | None) -> MlflowModel:
    """Load the python_function flavour. Its own signature has priority, as in MLflow."""
    _choose_keras_backend(path)
    model = pyfunc.load_model(str(path))
    own = _signature(model.metadata)
    return MlflowModel(model, own or signature or Signature(kind="columns"))


def _choose_keras_backend(path: Path) -> None:
    """Have Keras use the backend that the model was trained with, unless another is chosen.

    MLflow records the backend, but does not read it: Keras would look for TensorFlow.
    """
    backend = Model.load(str(path)).flavors.get("keras", {}).get("keras_backend")
    if backend:
        os.environ.setdefault("KERAS_BACKEND", str(backend))


def _signature(metadata: Any) -> Signature | None:
    signature = metadata.signature
    if signature is None or signature.inputs is None:
        return None
    is_tensor = signature.inputs.is_tensor_spec()
    outputs = signature.outputs.inputs if signature.outputs is not None else []
    return Signature(
        kind="tensors" if is_tensor else "columns",
        inputs=[_field(spec, f"input_{at}") for at, spec in enumerate(signature.inputs.inputs)],
        outputs=[_field(spec, f"output_{at}") for at, spec in enumerate(outputs)],
        params=[_field(spec, "") for spec in signature.params.params] if signature.params else [],
    )


def _field(spec: TensorSpec | ColSpec | ParamSpec, name: str) -> FieldSpec:
    if isinstance(spec, TensorSpec):
        dtype = np.dtype(spec.type)
        known = datatype_of(np.empty(0, dtype)) if dtype in DTYPES.values() else Datatype.BYTES
        return FieldSpec(name=spec.name or name, datatype=known, shape=list(spec.shape))
    declared = spec.dtype if isinstance(spec, ParamSpec) else spec.type
    kind = str(getattr(declared, "name", "")).lower()
    # MLflow itself checks columns of lists, objects, dates and bytes.
    shape = [-1] if kind in _COLUMN_TYPES or kind == "string" else [-1, -1]
    required = bool(getattr(spec, "required", True))
    return FieldSpec(
        name=spec.name or name,
        datatype=_COLUMN_TYPES.get(kind, Datatype.BYTES),
        shape=shape,
        required=required,
    )
