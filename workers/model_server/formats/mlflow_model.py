"""MLflow models: any flavour with a python_function, sklearn and pytorch among them.

Requests are read by MLflow's own scoring code, after our check of each column, so that they mean
here what they mean to `mlflow models serve`.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from mlflow import pyfunc
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import infer_and_parse_data, parse_csv_input
from mlflow.types.schema import ColSpec, ParamSpec, TensorSpec

from slipway.schemas.problem import FieldFault
from slipway.schemas.serving import Datatype, FieldSpec, Signature
from workers.model_server.arrays import DTYPES, array_of, check_shape, datatype_of, fits
from workers.model_server.codecs import Batch
from workers.model_server.errors import BadInput
from workers.model_server.infer import read_infer
from workers.model_server.json_text import check_params, read_scoring
from workers.serving.wire import Asked, Contract

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
        self.codec = MlflowCodec(signature, model.metadata.get_input_schema())
        self._model = model

    def predict(self, inputs: Any, params: dict[str, Any]) -> Any:
        """Return what the model gives; raises BadInput for what MLflow's own schema refuses."""
        try:
            return self._model.predict(inputs, params=params or None)
        except MlflowException as error:
            if "schema" in error.message.lower():
                raise BadInput(error.message.splitlines()[0][:1000]) from None
            raise


class MlflowCodec:
    """Reads requests into tables or arrays as MLflow does."""

    def __init__(self, signature: Signature, schema: Any) -> None:
        self._signature = signature
        self._schema = schema
        self._columns = signature.inputs if signature.kind == "columns" else []

    def read(self, asked: Asked) -> Batch:
        """Return what a request asks for; raises BadInput."""
        infer = None
        if asked.contract == Contract.INFER:
            arrays, infer, params = read_infer(asked)
            inputs = self._from_arrays(arrays)
        elif asked.contract == Contract.SCORING_CSV:
            inputs, params = self._from_csv(asked.body), {}
        else:
            key, value, params = read_scoring(asked.body)
            inputs = self._from_scoring(key, value)
        check_params(params, self._signature.params)
        rows, key_ = _kind(inputs)
        return Batch(inputs, rows, (key_, json.dumps(params, sort_keys=True)), params, infer)

    def join(self, batches: Sequence[Batch]) -> Any:
        """Return several batches with equal keys as one."""
        parts = [one.inputs for one in batches]
        if len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], pd.DataFrame):
            return pd.concat(parts, ignore_index=True)
        if isinstance(parts[0], dict):
            return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return np.concatenate(parts)

    def _from_scoring(self, key: str, value: Any) -> Any:
        faults = list(_column_faults(key, value, self._columns))
        if faults:
            shown = "; ".join(f"column {fault.field!r} {fault.message}" for fault in faults[:5])
            raise BadInput(f"The input does not fit the model: {shown}.", faults)
        try:
            return infer_and_parse_data({key: value}, self._schema)
        except MlflowException as error:
            raise BadInput(error.message.splitlines()[0][:1000]) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"`{key}` cannot be read: {error}.") from None

    def _from_csv(self, body: bytes) -> Any:
        try:
            return parse_csv_input(io.StringIO(body.decode()), self._schema)
        except (MlflowException, UnicodeDecodeError) as error:
            raise BadInput(f"The body is not CSV: {str(error).splitlines()[0][:500]}") from None

    def _from_arrays(self, arrays: dict[str, Any]) -> Any:
        specs = self._signature.inputs
        faults = [
            FieldFault(field=spec.name, message=f"is missing; {_expected(spec)} was expected")
            for spec in specs
            if spec.required and spec.name not in arrays
        ]
        if faults:
            raise BadInput(f"Input {faults[0].field!r} {faults[0].message}.", faults)
        if self._signature.kind == "tensors" and specs:
            for spec in specs:
                if spec.name in arrays:
                    found = array_of(spec.name, arrays[spec.name], spec.datatype)
                    check_shape(spec, found)
                    arrays[spec.name] = found
            return arrays[specs[0].name] if len(specs) == 1 else arrays
        types = {spec.name: spec for spec in specs}
        return pd.DataFrame(
            {
                name: array_of(name, array.reshape(-1), types[name].datatype)
                if name in types
                else array.reshape(-1)
                for name, array in arrays.items()
            }
        )


def _expected(spec: FieldSpec) -> str:
    return spec.datatype.value


def _kind(inputs: Any) -> tuple[int, Any]:
    if isinstance(inputs, pd.DataFrame):
        return len(inputs), ("table", tuple(inputs.columns), tuple(map(str, inputs.dtypes)))
    if isinstance(inputs, dict):
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        rows = {array.shape[0] if array.ndim else 1 for array in arrays.values()}
        kinds = tuple((name, a.dtype.str, a.shape[1:]) for name, a in arrays.items())
        return (rows.pop(), ("arrays", kinds)) if len(rows) == 1 else (1, object())
    array = np.asarray(inputs)
    return (array.shape[0] if array.ndim else 1), ("array", array.dtype.str, array.shape[1:])


def _columns_of(key: str, value: Any) -> dict[str, list[Any]] | None:
    """Return the columns of a body, or None when it has no names to check."""
    if key == "dataframe_split":
        if not isinstance(value, dict) or not isinstance(value.get("data"), list):
            raise BadInput("`dataframe_split` is not an object with `columns` and `data`.")
        names, data = value.get("columns"), value["data"]
        if names is None:
            return None
        if not isinstance(names, list) or any(
            not isinstance(row, list) or len(row) != len(names) for row in data
        ):
            raise BadInput("A row of `data` does not have as many values as `columns`.")
        return {str(name): [row[at] for row in data] for at, name in enumerate(names)}
    if key == "inputs" and isinstance(value, dict):
        return {
            str(name): column if isinstance(column, list) else [column]
            for name, column in value.items()
        }
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        names = dict.fromkeys(name for row in value for name in row)
        return {name: [row.get(name) for row in value] for name in names}
    if key == "dataframe_records":
        raise BadInput("`dataframe_records` is not a list of objects.")
    return None


def _column_faults(key: str, value: Any, specs: Sequence[FieldSpec]) -> list[FieldFault]:
    columns = _columns_of(key, value)
    if columns is None or not specs:
        return []
    faults = []
    for spec in specs:
        column = columns.get(spec.name)
        if column is None:
            if spec.required:
                message = f"is missing; {_expected(spec)} was expected"
                faults.append(FieldFault(field=spec.name, message=message))
            continue
        for place, item in enumerate(column):
            absent = item is None and (not spec.required or spec.datatype == Datatype.BYTES)
            if absent or spec.shape != [-1] or isinstance(item, list | dict):
                continue
            if not fits(item, spec.datatype):
                message = f"holds {str(item)[:60]!r} in row {place}; {_expected(spec)} was expected"
                faults.append(FieldFault(field=spec.name, message=message))
                break
    return faults


def load(path: Path, signature: Signature | None) -> MlflowModel:
    """Load the python_function flavour; its own signature counts, as it does to MLflow."""
    model = pyfunc.load_model(str(path))
    return MlflowModel(model, _signature(model.metadata) or signature or Signature(kind="columns"))


def _signature(metadata: Any) -> Signature | None:
    found = metadata.signature
    if found is None or found.inputs is None:
        return None
    is_tensor = found.inputs.is_tensor_spec()
    outputs = found.outputs.inputs if found.outputs is not None else []
    return Signature(
        kind="tensors" if is_tensor else "columns",
        inputs=[_field(spec, f"input_{at}") for at, spec in enumerate(found.inputs.inputs)],
        outputs=[_field(spec, f"output_{at}") for at, spec in enumerate(outputs)],
        params=[_field(spec, "") for spec in found.params.params] if found.params else [],
    )


def _field(spec: TensorSpec | ColSpec | ParamSpec, name: str) -> FieldSpec:
    if isinstance(spec, TensorSpec):
        dtype = np.dtype(spec.type)
        known = datatype_of(np.empty(0, dtype)) if dtype in DTYPES.values() else Datatype.BYTES
        return FieldSpec(name=spec.name or name, datatype=known, shape=list(spec.shape))
    declared = spec.dtype if isinstance(spec, ParamSpec) else spec.type
    kind = str(getattr(declared, "name", "")).lower()
    # Columns that hold lists or objects, dates and bytes are left to MLflow's own check.
    shape = [-1] if kind in _COLUMN_TYPES or kind == "string" else [-1, -1]
    required = bool(getattr(spec, "required", True))
    return FieldSpec(
        name=spec.name or name,
        datatype=_COLUMN_TYPES.get(kind, Datatype.BYTES),
        shape=shape,
        required=required,
    )
