"""Elements and shapes: from untrusted values to arrays of a type, with errors that name them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slipway.schemas.problem import FieldError
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
    """Return the name of an array's type. Anything but numbers is BYTES."""
    return Datatype(_NAMES.get(array.dtype, Datatype.BYTES))


def input_error(name: str, message: str) -> BadInput:
    """Return the error for one input."""
    return BadInput(f"Input {name!r} {message}.", [FieldError(field=name, message=message)])


def array_of(name: str, values: Any, datatype: str) -> Array:
    """Return values as an array of the type. Raises BadInput that names the first mismatch.

    Nothing is coerced: text is no number, 1.5 no integer, true no number. A missing value (null) is
    NaN if the type has one.
    """
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise input_error(name, f"has rows of different lengths; {datatype} was expected") from None
    if array.ndim > _MAX_NDIM:
        raise input_error(name, "is nested too deeply")
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(DTYPES[datatype])
    target = DTYPES[datatype]
    if target.kind in "iu" and array.dtype.kind in "fO":
        # numpy converts large integers to floats if they are mixed with others or with decimals.
        array = _exact_wholes(values, array)
    if not isinstance(values, np.ndarray) and not _needs_no_conversion(values, target.kind):
        return _refuse(name, values, datatype)
    match target.kind:
        case "O":
            fits = array.dtype.kind in "UO"
            return array.astype(object) if fits else _refuse(name, values, datatype)
        case "b":
            return array if array.dtype.kind == "b" else _refuse(name, values, datatype)
        case "f":
            return _floats(name, values, array, datatype)
    return _wholes(name, values, array, datatype)


def _floats(name: str, values: Any, result: Array, datatype: str) -> Array:
    target = DTYPES[datatype]
    is_plain = result.dtype.kind in "iuf" or (
        result.dtype.kind == "O"
        and all(
            value is None or (isinstance(value, int | float) and not isinstance(value, bool))
            for value in result.flat
        )
    )
    if not is_plain:
        return _refuse(name, values, datatype)
    with np.errstate(over="ignore"):
        given = result.astype(target)
    _refuse_rounded(name, values, given, datatype)
    if target.itemsize < 8 and np.isinf(given).any():
        largest = float(np.finfo(target).max)
        is_outside = np.isinf(given) & ~np.isinf(result.astype(np.float64))
        _refuse_outside(name, result, is_outside, datatype, -largest, largest)
    return given


def largest_exact_integer(datatype: str) -> int:
    """Return the number up to which a type of floats holds every whole number."""
    return int(2 ** (np.finfo(DTYPES[datatype]).nmant + 1))


def _refuse_rounded(name: str, values: Any, given: Array, datatype: str) -> None:
    """Raise BadInput for the first whole number that became another one."""
    if not given.size or not np.nanmax(np.abs(given), initial=0) >= largest_exact_integer(datatype):
        return
    for place, (value, held) in enumerate(zip(_elements(values), given.flat, strict=False)):
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if is_whole and np.isfinite(held) and int(held) != int(value):
            at = _row_of(place, given.shape)
            raise input_error(
                name,
                f"holds {value} in {at}; {datatype} was expected: it would become {int(held)}, "
                "send a number that it can represent exactly",
            )


def _wholes(name: str, values: Any, array: Array, datatype: str) -> Array:
    target = DTYPES[datatype]
    if array.dtype.kind == "f" and array.size and np.all(np.mod(array, 1) == 0):
        array = array.astype(np.int64) if np.abs(array).max() < 2**53 else array
    bounds = np.iinfo(target)
    is_whole = array.dtype.kind == "O" and all(type(value) is int for value in array.flat)
    if array.dtype.kind not in "iu" and not is_whole:
        return _refuse(name, values, datatype)
    if array.size and (int(array.min()) < bounds.min or int(array.max()) > bounds.max):
        is_outside = np.array([not bounds.min <= int(item) <= bounds.max for item in array.flat])
        _refuse_outside(name, array, is_outside, datatype, bounds.min, bounds.max)
    return array.astype(target)


def _exact_wholes(values: Any, array: Array) -> Array:
    """Return what was sent as whole numbers of Python, if all of it is exactly that."""
    if isinstance(values, np.ndarray):
        return array
    numbers = list(_elements(values))
    if len(numbers) != array.size or not all(_is_exact_whole(number) for number in numbers):
        return array
    whole = np.empty(array.size, object)
    whole[:] = [int(number) for number in numbers]
    return whole.reshape(array.shape)


def _is_exact_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer() and abs(value) < 2**53
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_outside(
    name: str, result: Array, is_outside: Array, datatype: str, least: float, most: float
) -> None:
    """Raise BadInput for the first element outside the range of the type, if any."""
    places = np.flatnonzero(is_outside)
    if not places.size:
        return
    place = int(places[0])
    value = result.reshape(-1)[place]
    message = f"holds {value} in {_row_of(place, result.shape)}; {datatype} was expected"
    raise input_error(name, f"{message}: from {least} to {most}")


def _row_of(place: int, shape: Sequence[int]) -> str:
    """Return the row that an element is in, and its place among all."""
    rows = shape[0] if shape else 1
    width = max(1, int(np.prod(shape[1:])))
    return f"row {place // width if rows else 0} (element {place})"


def _needs_no_conversion(values: Any, kind: str) -> bool:
    """Return whether no value would be silently converted (true to 1, 1 to "1")."""
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
    """Return whether one element is valid for the type without coercion."""
    kind = DTYPES[datatype].kind
    if kind == "O":
        return isinstance(value, str)
    if kind == "b" or isinstance(value, bool | np.bool_):
        return kind == "b" and isinstance(value, bool | np.bool_)
    if kind == "f":
        if isinstance(value, int):
            return _is_held(value, datatype)
        return value is None or isinstance(value, float | np.number)
    if isinstance(value, int | np.integer):
        return bool(np.iinfo(DTYPES[datatype]).min <= value <= np.iinfo(DTYPES[datatype]).max)
    return isinstance(value, float) and value.is_integer() and abs(value) < 2**53


def _is_held(value: int, datatype: str) -> bool:
    """Return whether a type of floats holds this whole number and not only one near it."""
    try:
        with np.errstate(over="ignore"):
            held = DTYPES[datatype].type(value)
    except OverflowError:
        return False
    return bool(np.isfinite(held)) and int(held) == value


def _refuse(name: str, values: Any, datatype: str) -> Array:
    rows = values if isinstance(values, list | tuple | np.ndarray) else [values]
    place = 0
    for row, part in enumerate(rows):
        for value in _elements(part):
            if not fits(value, datatype):
                text = repr(value)
                shown = text if len(text) <= 60 else f"{text[:60]}… ({len(text)} characters)"
                at = f"in row {row} (element {place})"
                raise input_error(name, f"holds {shown} {at}; {datatype} was expected")
            place += 1
    raise input_error(name, f"cannot be read as {datatype}")


def check_shape(spec: FieldSpec, array: Array) -> None:
    """Raise BadInput unless the array has the shape of the input, -1 standing for any length."""
    shape = array.shape
    if len(shape) == len(spec.shape) and all(
        requested in (-1, value) for requested, value in zip(spec.shape, shape, strict=True)
    ):
        return
    raise input_error(spec.name, f"has the shape {list(shape)}; {spec.shape} was expected")


def _output(value: Any) -> Array:
    dtype = getattr(value, "dtype", None)
    if hasattr(value, "to_numpy") and not isinstance(dtype, np.dtype):
        # As objects: pandas integers with missing values would become floats.
        return np.asarray(value, dtype=object)
    return np.asarray(value)


def by_name(raw: Any, specs: Sequence[FieldSpec]) -> dict[str, Array]:
    """Return a model's outputs as named arrays, with names from the signature if possible."""
    if isinstance(raw, dict):
        return {str(name): _output(value) for name, value in raw.items()}
    if isinstance(raw, tuple) and raw and isinstance(raw[0], np.ndarray):
        names = [spec.name for spec in specs]
        names += [f"output_{place}" for place in range(len(names), len(raw))]
        return {name: _output(value) for name, value in zip(names, raw, strict=False)}
    if hasattr(raw, "columns"):
        return {str(name): _output(raw[name]) for name in raw.columns}
    name = specs[0].name if len(specs) == 1 else "output"
    return {name: _output(raw)}
