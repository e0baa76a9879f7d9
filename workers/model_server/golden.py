"""Ready means: golden predictions came back equal. And what warming up is."""

import math
import time
from typing import Any, Final

import orjson

from slipway.schemas.serving import FieldSpec, GoldenPrediction, Signature
from workers.model_server.arrays import DTYPES
from workers.model_server.engine import Engine
from workers.model_server.errors import NotReady
from workers.serving.wire import Contract, RequestFrame

_WARM_RUNS: Final = 3
_TIMED_RUNS: Final = 5


def warm_up(engine: Engine, signature: Signature, golden: list[GoldenPrediction]) -> float:
    """Predict until all lazy loading is done and return the milliseconds of a warm prediction.

    Warms up with the golden requests, or without any with zeros of the signature's shape. A model
    that refuses zeros is warmed by its first request.
    """
    bodies = [orjson.dumps(item.request) for item in golden] or _zeros(signature)
    if not bodies:
        return 0.0
    took = []
    for run in range(_WARM_RUNS + _TIMED_RUNS):
        began = time.perf_counter()
        engine.answer([RequestFrame(0, Contract.SCORING, 0, bodies[run % len(bodies)])])
        took.append((time.perf_counter() - began) * 1000)
    return min(took[_WARM_RUNS:])


def _zeros(signature: Signature) -> list[bytes]:
    specs = signature.inputs
    if not specs or any(DTYPES[spec.datatype].kind == "O" for spec in specs):
        return []
    if signature.kind == "columns":
        return [orjson.dumps({"dataframe_records": [{spec.name: _zero(spec) for spec in specs}]})]
    return [
        orjson.dumps({"inputs": {spec.name: _block(spec.shape, _zero(spec)) for spec in specs}})
    ]


def _zero(spec: FieldSpec) -> Any:
    return False if DTYPES[spec.datatype].kind == "b" else 0


def _block(shape: list[int], value: Any) -> Any:
    for length in reversed(shape):
        value = [value] * (length if length > 0 else 1)
    return value


def check_golden(engine: Engine, golden: list[GoldenPrediction]) -> None:
    """Raise NotReady unless every golden request is answered as it has to be."""
    for number, item in enumerate(golden, start=1):
        request_frame = RequestFrame(0, Contract.SCORING, 0, orjson.dumps(item.request))
        answer = engine.answer([request_frame])[0]
        document = orjson.loads(answer.body)
        if answer.status != 200:
            raise NotReady(
                f"Golden prediction {number} of {len(golden)} was rejected: {document['detail']}"
            )
        if difference := first_difference(document["predictions"], item.predictions, item):
            raise NotReady(
                f"Golden prediction {number} of {len(golden)} differs from the recorded one: "
                f"{difference}"
            )


def first_difference(value: Any, expected: Any, tolerance: GoldenPrediction, at: str = "") -> str:
    """Describe the first difference beyond the tolerance.

    Return "" if the predictions are equal.
    """
    place = at or "the prediction"
    if isinstance(expected, list) and isinstance(value, list):
        if len(expected) != len(value):
            return f"{place} has {len(value)} entries; {len(expected)} were expected"
        for number, (result, theirs) in enumerate(zip(value, expected, strict=True)):
            if difference := first_difference(result, theirs, tolerance, f"{at}[{number}]"):
                return difference
        return ""
    if isinstance(expected, dict) and isinstance(value, dict):
        if expected.keys() != value.keys():
            return f"{place} has {sorted(value)}; {sorted(expected)} were expected"
        for name in expected:
            if difference := first_difference(
                value[name], expected[name], tolerance, f"{at}.{name}"
            ):
                return difference
        return ""
    if _is_number(expected) and _is_number(value):
        if math.isclose(value, expected, rel_tol=0, abs_tol=_allowed(expected, tolerance)):
            return ""
    elif type(expected) is type(value) and expected == value:
        return ""
    return f"{place} is {str(value)[:80]}; {str(expected)[:80]} was expected"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _allowed(expected: float, tolerance: GoldenPrediction) -> float:
    return tolerance.atol + tolerance.rtol * abs(expected)
