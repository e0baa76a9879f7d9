"""An answer says what the model gave, in every shape and language in the same way."""

import json
import math
import struct
import warnings
from pathlib import Path
from typing import Any, Final

import pytest

from workers.model_server.engine import Engine
from workers.serving.wire import Contract, RequestFrame

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    from workers.model_server.formats import mlflow_model

pytestmark = pytest.mark.filterwarnings("ignore")
_SCRIPT: Final = """
import datetime
from decimal import Decimal

import mlflow
import numpy as np
import pandas as pd

VALUES = {
    "naive": pd.Timestamp("2024-03-31T01:30:00.123456789"),
    "zoned": pd.Timestamp("2024-03-31T01:30:00.5", tz="Europe/Berlin"),
    "moment": datetime.datetime(2024, 3, 31, 1, 30, tzinfo=datetime.timezone.utc),
    "datetime64": np.datetime64("2024-03-31T01:30:00.123456789"),
    "date": datetime.date(2024, 3, 31),
    "duration": pd.Timedelta(hours=1, nanoseconds=5),
    "decimal": Decimal("12345678901234567890.50"),
    "bytes": b"\\0\\xff",
    "int64": np.int64(2**63 - 1),
    "uint64": np.uint64(2**64 - 1),
    "big": 2**70,
    "float32": np.float32(0.1),
    "float16": np.float16(0.5),
    "truth": np.bool_(True),
    "nan": float("nan"),
    "infinity": float("-inf"),
    "none": None,
    "na": pd.NA,
    "nat": pd.NaT,
    "text": "\\u00e9 NA 007",
    "list": [1, np.int32(2), b"a"],
    "nested": {"at": pd.Timestamp("2024-03-31"), "parts": [Decimal("1.10"), None, pd.NA]},
}


class Model(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        kind, shape = model_input["kind"].iloc[0], model_input["shape"].iloc[0]
        values = [VALUES[kind]] * len(model_input)
        objects = np.empty(len(values), object)
        objects[:] = values
        if shape == "array":
            return objects
        if shape == "typed":
            return np.array(values)
        if shape == "series":
            return pd.Series(values)
        if shape == "nullable":
            dtype = {"int64": "Int64", "truth": "boolean"}[kind]
            return pd.Series([*values[:-1], None], dtype=dtype)
        if shape == "frame":
            return pd.DataFrame({"out": pd.Series(values)})
        if shape == "dict":
            return {"out": values}
        return values


mlflow.models.set_model(Model())
"""
EXPECTED: Final[dict[str, Any]] = {
    "naive": "2024-03-31T01:30:00.123456789",
    "zoned": "2024-03-31T01:30:00.5+01:00",
    "moment": "2024-03-31T01:30:00+00:00",
    "datetime64": "2024-03-31T01:30:00.123456789",
    "date": "2024-03-31",
    "duration": "PT3600.000000005S",
    "decimal": "12345678901234567890.50",
    "bytes": "AP8=",
    "int64": 2**63 - 1,
    "uint64": 2**64 - 1,
    "big": 2**70,
    "float32": pytest.approx(0.1, abs=1e-8),
    "float16": 0.5,
    "truth": True,
    "nan": None,
    "infinity": None,
    "none": None,
    "na": None,
    "nat": None,
    "text": "é NA 007",
    "list": [1, 2, "YQ=="],
    "nested": {"at": "2024-03-31T00:00:00", "parts": ["1.10", None, None]},
}
# Of a tensor: numbers and texts; whatever is neither is JSON in a text.
IN_TENSORS: Final = EXPECTED | {
    "big": str(2**70),
    "list": '[1,2,"YQ=="]',
    "nested": '{"at":"2024-03-31T00:00:00","parts":["1.10",null,null]}',
}
SHAPES: Final = ["list", "array", "series", "frame", "dict"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model that answers with a value of the kind, and in the shape, that it is asked for."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "script.py").write_text(_SCRIPT)
    mlflow.pyfunc.save_model(
        folder / "model",
        python_model=str(folder / "script.py"),
        signature=ModelSignature(
            Schema([ColSpec(DataType.string, "kind"), ColSpec(DataType.string, "shape")])
        ),
        pip_requirements=["mlflow", "pandas"],
    )
    model = mlflow_model.load(Path(folder / "model"), None)
    return Engine(model, name="outputs", version="1", max_rows=8)


def _answer(engine: Engine, body: bytes, contract: Contract) -> Any:
    answer = engine.answer([RequestFrame(1, contract, 0, body)])[0]
    assert answer.status == 200, answer.body
    return json.loads(answer.body, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _bodies(kind: str, shape: str) -> list[tuple[Contract, bytes]]:
    row = {"kind": kind, "shape": shape}
    bodies: list[dict[str, Any]] = [
        {"dataframe_records": [row, row]},
        {"instances": [row, row]},
        {"dataframe_split": {"columns": ["kind", "shape"], "data": [[kind, shape]] * 2}},
        {"inputs": {"kind": [kind] * 2, "shape": [shape] * 2}},
    ]
    csv = f"kind,shape\n{kind},{shape}\n{kind},{shape}\n".encode()
    return [
        *((Contract.SCORING, json.dumps(body).encode()) for body in bodies),
        (Contract.SCORING_CSV, csv),
    ]


def _infer(kind: str, shape: str, *, binary: bool = False) -> bytes:
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [2], "data": [value] * 2}
        for name, value in (("kind", kind), ("shape", shape))
    ]
    parameters = {"binary_data_output": binary}
    return json.dumps({"inputs": inputs, "parameters": parameters}).encode()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", EXPECTED)
def test_every_request_is_answered_with_the_same_values(
    engine: Engine, kind: str, shape: str
) -> None:
    expected = [EXPECTED[kind]] * 2
    for contract, body in _bodies(kind, shape):
        predictions = _answer(engine, body, contract)["predictions"]
        if shape == "frame":
            predictions = [row["out"] for row in predictions]
        elif shape == "dict":
            predictions = predictions["out"]
        assert predictions == expected, (contract, body)


@pytest.mark.parametrize("shape", ["array", "series", "frame"])
@pytest.mark.parametrize("kind", IN_TENSORS)
def test_tensors_hold_the_same_values(engine: Engine, kind: str, shape: str) -> None:
    (tensor,) = _answer(engine, _infer(kind, shape), Contract.INFER)["outputs"]
    assert tensor["shape"] == [2]
    assert tensor["data"] == [IN_TENSORS[kind]] * 2
    is_text = isinstance(IN_TENSORS[kind], str)
    assert (tensor["datatype"] == "BYTES") or not is_text


def test_arrays_of_times_are_times(engine: Engine) -> None:
    for contract, body in _bodies("datetime64", "typed"):
        assert _answer(engine, body, contract)["predictions"] == [EXPECTED["datetime64"]] * 2
    (tensor,) = _answer(engine, _infer("datetime64", "typed"), Contract.INFER)["outputs"]
    assert (tensor["datatype"], tensor["data"]) == ("BYTES", [EXPECTED["datetime64"]] * 2)


@pytest.mark.parametrize(("kind", "datatype"), [("int64", "INT64"), ("truth", "BOOL")])
def test_nullable_columns_keep_their_type_and_what_is_missing(
    engine: Engine, kind: str, datatype: str
) -> None:
    expected = [EXPECTED[kind], None]
    for contract, body in _bodies(kind, "nullable"):
        assert _answer(engine, body, contract)["predictions"] == expected
    (tensor,) = _answer(engine, _infer(kind, "nullable"), Contract.INFER)["outputs"]
    assert (tensor["datatype"], tensor["data"]) == (datatype, expected)
    request = RequestFrame(1, Contract.INFER, 0, _infer(kind, "nullable", binary=True))
    answer = engine.answer([request])[0]
    assert answer.status == 400
    assert b"has missing values" in answer.body


@pytest.mark.parametrize("shape", [*SHAPES, "typed"])
def test_infinite_numbers_are_null_and_said(engine: Engine, shape: str) -> None:
    for kind, is_said in (("infinity", True), ("nan", False), ("int64", False)):
        for contract, body in _bodies(kind, shape):
            answer = _answer(engine, body, contract)
            assert ("warnings" in answer) is is_said
            assert not is_said or "infinite numbers" in answer["warnings"][0]


def test_tensors_say_so_too_and_hold_them_as_bytes(engine: Engine) -> None:
    (tensor,) = _answer(engine, _infer("infinity", "typed"), Contract.INFER)["outputs"]
    assert tensor["data"] == [None, None]
    assert "infinite numbers" in tensor["parameters"]["warning"]
    answer = engine.answer(
        [RequestFrame(1, Contract.INFER, 0, _infer("infinity", "typed", binary=True))]
    )
    assert answer[0].body[answer[0].head_len :] == struct.pack("<dd", -math.inf, -math.inf)


def test_bytes_in_binary_tensors_are_the_text_of_json(engine: Engine) -> None:
    answer = engine.answer(
        [RequestFrame(1, Contract.INFER, 0, _infer("bytes", "array", binary=True))]
    )[0]
    assert answer.status == 200
    tail = answer.body[answer.head_len :]
    assert tail == (struct.pack("<I", 4) + b"AP8=") * 2
