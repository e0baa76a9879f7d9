"""Elements and shapes: from untrusted values to arrays of a type, with errors that name them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slipway.schemas.problem import FieldFault
from slipway.schemas.serving import Datatype, FieldSpec
from workers.model_server.errors import BadInput

Array = NDArray[Any]
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype(np.uint8),
    Datatype.UINT16: np.dtype(np.uint16),
    Datatype.UINT32: np.dtype(np.uint32),
    Datatype.UINT64: np.dtype(np.uint64),
    Datatype.INT8: np.dtype(np.int8),
    Datatype.INT16: np.dtype(np.int16),
    Datatype.INT32: np.dtype(np.int32),
    Datatype.INT64: np.dtype(np.int64),
    Datatype.FP16: np.dtype(np.float16),
    Datatype.FP32: np.dtype(np.float32),
    Datatype.FP64: np.dtype(np.float64),
    Datatype.BYTES: np.dtype(object),
}
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items() if name != Datatype.BYTES}
_MAX_NDIM: Final = 32


def datatype_of(array: Array) -> Datatype:
    """Return the name of an array's type; what is no number is BYTES."""
    return Datatype(_NAMES.get(array.dtype, Datatype.BYTES))


def fault(name: str, message: str) -> BadInput:
    """Return the error for one input."""
    return BadInput(f"Input {name!r} {message}.", [FieldFault(field=name, message=message)])


def array_of(name: str, values: Any, datatype: str) -> Array:
    """Return values as an array of the type; raises BadInput naming what does not fit.

    Nothing is bent: text is no number, 1.5 no whole number, true no number. A missing value (null)
    is NaN where the type has one.
    """
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):
        raise fault(name, f"has rows of different lengths; {datatype} was expected") from None
    if found.ndim > _MAX_NDIM:
        raise fault(name, "is nested too deeply")
    if found.size == 0 and found.dtype.kind == "f":
        return found.astype(DTYPES[datatype])
    target = DTYPES[datatype]
    if not isinstance(values, np.ndarray) and not _alike(values, target.kind):
        return _refuse(name, values, datatype)
    match target.kind:
        case "O":
            fits = found.dtype.kind in "UO"
            return found.astype(object) if fits else _refuse(name, values, datatype)
        case "b":
            return found if found.dtype.kind == "b" else _refuse(name, values, datatype)
        case "f":
            return _floats(name, values, found, datatype)
    return _wholes(name, values, found, datatype)


def _floats(name: str, values: Any, found: Array, datatype: str) -> Array:
    if found.dtype.kind in "iuf":
        return found.astype(DTYPES[datatype])
    if found.dtype.kind == "O" and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in found.flat
    ):
        return found.astype(DTYPES[datatype])
    return _refuse(name, values, datatype)


def _wholes(name: str, values: Any, found: Array, datatype: str) -> Array:
    target = DTYPES[datatype]
    if found.dtype.kind == "f" and found.size and np.all(np.mod(found, 1) == 0):
        found = found.astype(np.int64) if np.abs(found).max() < 2**53 else found
    if found.dtype.kind not in "iu":
        return _refuse(name, values, datatype)
    bounds = np.iinfo(target)
    if found.size and (int(found.min()) < bounds.min or int(found.max()) > bounds.max):
        raise fault(name, f"holds a number outside {bounds.min} to {bounds.max}, as {datatype} is")
    return found.astype(target)


def _alike(values: Any, kind: str) -> bool:
    """Whether nothing among the values would be taken for another type (true for 1, 1 for "1")."""
    if kind == "O":
        return all(isinstance(value, str) for value in _elements(values))
    return kind == "b" or not any(value is True or value is False for value in _elements(values))


def _elements(values: Any) -> Iterator[Any]:
    if isinstance(values, list | tuple):
        for value in values:
            yield from _elements(value)
    elif isinstance(values, np.ndarray):
        yield from values.flat
    else:
        yield values


def fits(value: Any, datatype: str) -> bool:
    """Whether one element can be of the type, without being bent."""
    kind = DTYPES[datatype].kind
    if kind == "O":
        return isinstance(value, str)
    if kind == "b" or isinstance(value, bool | np.bool_):
        return kind == "b" and isinstance(value, bool | np.bool_)
    if kind == "f":
        return value is None or isinstance(value, int | float | np.number)
    return isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())


def _refuse(name: str, values: Any, datatype: str) -> Array:
    for place, value in enumerate(_elements(values)):
        if not fits(value, datatype):
            shown = repr(value)[:60]
            raise fault(name, f"holds {shown} (element {place}); {datatype} was expected")
    raise fault(name, f"cannot be read as {datatype}")


def check_shape(spec: FieldSpec, array: Array) -> None:
    """Raise BadInput unless the array has the shape of the input, -1 standing for any length."""
    shape = array.shape
    if len(shape) == len(spec.shape) and all(
        wanted in (-1, found) for wanted, found in zip(spec.shape, shape, strict=True)
    ):
        return
    raise fault(spec.name, f"has the shape {list(shape)}; {spec.shape} was expected")


def by_name(raw: Any, specs: Sequence[FieldSpec]) -> dict[str, Array]:
    """Return what a model gave as named arrays, whose names the signature tells if it can."""
    if isinstance(raw, dict):
        return {str(name): np.asarray(value) for name, value in raw.items()}
    if isinstance(raw, tuple) and raw and isinstance(raw[0], np.ndarray):
        names = [spec.name for spec in specs]
        names += [f"output_{place}" for place in range(len(names), len(raw))]
        return {name: np.asarray(value) for name, value in zip(names, raw, strict=False)}
    if hasattr(raw, "columns"):
        return {str(name): np.asarray(raw[name]) for name in raw.columns}
    name = specs[0].name if len(specs) == 1 else "output"
    return {name: np.asarray(raw)}
