"""A model gets exactly what was sent, in every shape, or the request is refused."""

import base64
import json
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from slipway.schemas.serving import ModelFormat
from tests.workers.model_server.echo import save_echo
from tests.workers.serving import Answer, Plane, plane
from workers.model_server.engine import Engine
from workers.serving.wire import Contract, RequestFrame

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import Array, Object, Property

    from workers.model_server.formats import mlflow_model

pytestmark = pytest.mark.filterwarnings("ignore")
_COLUMNS: Final[list[ColSpec | TensorSpec]] = [
    ColSpec(DataType.long, "n"),
    ColSpec(DataType.string, "s"),
    ColSpec(DataType.integer, "i32", required=False),
    ColSpec(DataType.double, "d", required=False),
    ColSpec(DataType.float, "f32", required=False),
    ColSpec(DataType.boolean, "b", required=False),
    ColSpec(DataType.long, "id", required=False),
    ColSpec(DataType.datetime, "at", required=False),
    ColSpec(DataType.binary, "raw", required=False),
    ColSpec(Array(DataType.long), "vec", required=False),
    ColSpec(
        Object([Property("a", DataType.long), Property("z", DataType.string, required=False)]),
        "obj",
        required=False,
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a column of each type, which answers with what it was given."""
    return save_echo(tmp_path_factory.mktemp("mixed"), Schema(_COLUMNS))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """It, loaded here."""
    return Engine(mlflow_model.load(folder, None), name="mixed", version="1", max_rows=64)


def _ask(engine: Engine, body: bytes, contract: Contract = Contract.SCORING) -> tuple[int, Any]:
    answer = engine.answer([RequestFrame(1, contract, 0, body)])[0]
    return answer.status, json.loads(answer.body)


def _as_records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"dataframe_records": rows}


def _as_instances(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"instances": rows}


def _as_split(rows: list[dict[str, Any]]) -> dict[str, Any]:
    data = [list(row.values()) for row in rows]
    return {"dataframe_split": {"columns": list(rows[0]), "data": data}}


def _as_inputs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"inputs": {name: [row[name] for row in rows] for name in rows[0]}}


SHAPES: Final = [_as_records, _as_instances, _as_split, _as_inputs]
Shape = Callable[[list[dict[str, Any]]], dict[str, Any]]
GOOD: Final = [
    {"id": 9007199254740993},
    {"id": -(2**63)},
    {"id": None},
    {"i32": 2**31 - 1},
    {"i32": None},
    {"f32": 16777218},
    {"f32": 2**70},
    {"d": 2**70},
    {"i32": 7.0},
    {"d": 0.1},
    {"d": 1e300},
    {"d": None},
    {"f32": 0.5},
    {"f32": None},
    {"b": True},
    {"b": None},
    {"at": "2024-03-31T01:30:00.123456789"},
    {"at": "2024-03-31"},
    {"at": None},
    {"raw": base64.b64encode(b"\0\xff").decode()},
    {"raw": None},
    {"d": 10**20},
    {"vec": [1, 9007199254740993]},
    {"vec": []},
    {"obj": {"a": 9007199254740993, "z": "é☃"}},
    {"obj": {"a": 1}},
    {"obj": None},
    {"s": "007"},
    {"s": "NA"},
    {"s": "9" * 5000},
]
GIVEN: Final = {
    "2024-03-31": "2024-03-31T00:00:00",
    base64.b64encode(b"\0\xff").decode(): "00ff",
}
BAD: Final = [
    ({"n": 2**63}, "holds '9223372036854775808' in row 1; INT64 was expected: from -9223"),
    ({"n": 2**70}, "holds '1180591620717411303424' in row 1; INT64 was expected: from -9223"),
    ({"n": -(2**63) - 1}, "holds '-9223372036854775809' in row 1; INT64 was expected: from -9223"),
    ({"d": 2**64 + 1}, "in row 1; FP64 was expected: it would become 1.8446744073709552e+19"),
    ({"d": 10**30 + 1}, "holds '1000000000000000000000000000001' in row 1; FP64 was expected: it"),
    ({"f32": 10**20}, "in row 1; FP32 was expected: it would become 100000002004087734272"),
    ({"vec": [1, 10**25]}, "holds '10000000000000000000000000' at [1] in row 1; INT64"),
    ({"obj": {"a": 10**25}}, "holds '10000000000000000000000000' at .a in row 1; INT64"),
    ({"s": 10**25}, "holds '10000000000000000000000000' in row 1; a string was expected"),
    ({"n": 9007199254740994.0}, "holds '9007199254740994.0' in row 1; INT64 was expected"),
    ({"n": 1.5}, "holds '1.5' in row 1; INT64 was expected"),
    ({"n": True}, "holds 'True' in row 1; INT64 was expected"),
    ({"n": "1"}, "holds '1' in row 1; INT64 was expected"),
    ({"n": None}, "holds null in row 1; INT64 was expected"),
    ({"i32": 3e9}, "holds '3000000000.0' in row 1; INT32 was expected: from -2147483648 to"),
    ({"i32": 3_000_000_000}, "holds '3000000000' in row 1; INT32 was expected"),
    ({"f32": 1e300}, "holds '1e+300' in row 1; FP32 was expected: from -3.4028"),
    ({"f32": 16777217}, "holds '16777217' in row 1; FP32 was expected: it would become 16777216"),
    ({"f32": -(2**63) + 1}, "in row 1; FP32 was expected: it would become -9223372036854775808"),
    ({"d": 9007199254740993}, "in row 1; FP64 was expected: it would become 9007199254740992"),
    ({"d": "0.1"}, "holds '0.1' in row 1; FP64 was expected"),
    ({"b": 1}, "holds '1' in row 1; BOOL was expected"),
    ({"s": 7}, "holds '7' in row 1; a string was expected"),
    ({"at": "2024-03-31T01:30:00+01:00"}, "in row 1; a datetime without a zone"),
    ({"at": "2024-03-31T01:30:00Z"}, "so Z would be lost"),
    ({"at": "03/04/2024"}, "in row 1; a datetime without a zone"),
    ({"at": "2024-02-30"}, "holds '2024-02-30' in row 1; a datetime"),
    ({"at": "3000-01-01"}, "holds '3000-01-01' in row 1; a datetime"),
    ({"at": 1711848600}, "holds '1711848600' in row 1; a datetime"),
    ({"raw": "not Base64!"}, "holds 'not Base64!' in row 1; bytes in Base64"),
    ({"vec": [1, 2**63]}, "holds '9223372036854775808' at [1] in row 1; INT64"),
    ({"obj": {"a": "x"}}, "holds 'x' at .a in row 1; INT64 was expected"),
    ({"obj": {"z": "x"}}, "holds null at .a in row 1; INT64 was expected: it is missing"),
    ({"obj": {"a": 1, "q": 2}}, "at .q in row 1; nothing was expected: the object has only a, z"),
    ({"obj": [1]}, "holds '[1]' in row 1; an object of a, z was expected"),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", GOOD, ids=str)
def test_a_model_gets_what_was_sent(engine: Engine, shape: Shape, change: dict[str, Any]) -> None:
    rows = [{"n": 1, "s": "a"} | change, {"n": 2, "s": "b"} | change]
    status, answer = _ask(engine, json.dumps(shape(rows)).encode())
    assert status == 200, answer
    (name, value), *_ = change.items()
    for prediction in answer["predictions"]:
        given = json.loads(prediction)[0][name]
        missing = given is None or given != given
        assert missing if value is None else given == GIVEN.get(str(value), value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("change", "message"), BAD, ids=str)
def test_what_cannot_be_given_exactly_is_refused_by_row_and_column(
    engine: Engine, shape: Shape, change: dict[str, Any], message: str
) -> None:
    good: dict[str, Any] = {"n": 1, "s": "a"}
    (name, _), *_ = change.items()
    fill = {"vec": [1], "obj": {"a": 1}}.get(name)
    rows = [good | ({} if name in good else {name: fill}), good | change]
    status, answer = _ask(engine, json.dumps(shape(rows)).encode())
    assert status == 400, answer
    assert answer["code"] == "invalid_input"
    assert f"column {name!r}" in answer["detail"]
    assert message in answer["detail"]
    assert [fault["field"] for fault in answer["errors"]] == [name]
    assert message in answer["errors"][0]["message"]


CSV_GOOD: Final = [
    ("n,s,id", "1,007,9007199254740993", {"n": 1, "s": "007", "id": 9007199254740993}),
    ("n,s,id,b", "1,NA,,", {"s": "NA", "id": None, "b": None}),
    ("n,s,b", "1,a,true", {"b": True}),
    ("n,s,b,d", "1,a,False,1e-3", {"b": False, "d": 0.001}),
    ("n,s,at", "1,a,2024-03-31 01:30:00", {"at": "2024-03-31T01:30:00"}),
    ("s,more,n", '"a,b",ignored,5', {"s": "a,b", "n": 5}),
    ("n,s", '1,"', None),
]
CSV_BAD: Final = [
    ("s", "a", "column 'n' is missing; INT64 was expected, there is: 's'"),
    ("n,s", "9223372036854775808,a", "column 'n' holds '9223372036854775808' in row 0; INT64"),
    ("n,s", ",a", "column 'n' holds null in row 0; INT64 was expected"),
    ("n,s", "1_000,a", "column 'n' holds '1_000' in row 0; INT64 was expected"),
    ("n,s,i32", "1,a,3e9", "column 'i32' holds '3000000000.0' in row 0; INT32 was expected"),
    ("n,s,at", "1,a,2024-03-31T01:30:00+01:00", "column 'at' holds"),
    ("n,s,b", "1,a,maybe", "column 'b' holds 'maybe' in row 0; BOOL was expected"),
    ("n,s,n", "1,a,2", "The column 'n' appears twice"),
    ("n,s", "1,a,2", "Row 0 has 3 values; the first line has 2 names"),
]


@pytest.mark.parametrize(("head", "line", "given"), [case for case in CSV_GOOD if case[2]])
def test_csv_gives_what_it_says(engine: Engine, head: str, line: str, given: Any) -> None:
    status, answer = _ask(engine, f"{head}\n{line}\n".encode(), Contract.SCORING_CSV)
    assert status == 200, answer
    row = json.loads(answer["predictions"][0])[0]
    assert {name: row[name] for name in given} == given


@pytest.mark.parametrize(("head", "line", "message"), CSV_BAD)
def test_csv_that_cannot_be_given_exactly_is_refused(
    engine: Engine, head: str, line: str, message: str
) -> None:
    status, answer = _ask(engine, f"{head}\n{line}\n".encode(), Contract.SCORING_CSV)
    assert status == 400, answer
    assert message in answer["detail"]


def _infer(**tensors: tuple[str, list[Any]]) -> bytes:
    inputs = [
        {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}
        for name, (datatype, data) in tensors.items()
    ]
    return json.dumps({"inputs": inputs}).encode()


def test_tensors_are_held_to_the_same_signature(engine: Engine) -> None:
    good: dict[str, tuple[str, list[Any]]] = {"n": ("INT64", [2**63 - 1]), "s": ("BYTES", ["a"])}
    status, answer = _ask(engine, _infer(**good), Contract.INFER)
    assert status == 200, answer
    assert json.loads(answer["outputs"][0]["data"][0])[0]["n"] == 2**63 - 1
    bad: list[tuple[dict[str, tuple[str, list[Any]]], str]] = [
        ({"i32": ("INT64", [3_000_000_000])}, "column 'i32' holds '3000000000' in row 0; INT32"),
        ({"f32": ("FP64", [1e300])}, "column 'f32' holds '1e+300' in row 0; FP32"),
        ({"n": ("UINT64", [2**63])}, "column 'n' holds '9223372036854775808' in row 0; INT64"),
        ({"at": ("BYTES", ["2024-03-31T01:30:00Z"])}, "column 'at' holds"),
        ({"b": ("BYTES", ["true"])}, "column 'b' holds 'true' in row 0; BOOL"),
    ]
    for more, message in bad:
        status, answer = _ask(engine, _infer(**(good | more)), Contract.INFER)
        assert (status, message in answer["detail"]) == (400, True), answer


def test_bytes_of_a_tensor_are_bytes(engine: Engine) -> None:
    raw = b"\0\xff\xfe"
    tails = [struct.pack("<q", 5), struct.pack("<I", 1) + b"a", struct.pack("<I", 3) + raw]
    inputs = [
        {
            "name": name,
            "datatype": datatype,
            "shape": [1],
            "parameters": {"binary_data_size": len(tail)},
        }
        for (name, datatype), tail in zip(
            [("n", "INT64"), ("s", "BYTES"), ("raw", "BYTES")], tails, strict=True
        )
    ]
    head = json.dumps({"inputs": inputs}).encode()
    request = RequestFrame(1, Contract.INFER, len(head), head + b"".join(tails))
    answer = engine.answer([request])[0]
    assert answer.status == 200, answer.body
    value = json.loads(answer.body)["outputs"][0]["data"][0]
    assert json.loads(value)[0]["raw"] == raw.hex()


def test_params_are_held_to_their_types(engine: Engine) -> None:
    body = {"dataframe_records": [{"n": 1, "s": "a"}]}
    good = {"horizon": 2**31 - 1, "at": 0.25, "steps": [1, 2**62]}
    status, answer = _ask(engine, json.dumps(body | {"params": good}).encode())
    assert status == 200, answer
    assert json.loads(answer["predictions"][0])[1] == good
    for params, message in [
        ({"horizon": 3_000_000_000}, "'horizon' is '3000000000'; INT32 was expected: from"),
        ({"horizon": "3"}, "'horizon' is '3'; INT32 was expected"),
        ({"steps": [1, 2**63]}, "'steps' is '9223372036854775808' at [1]; INT64 was expected"),
        ({"steps": [1, 2**70]}, "'steps' is '1180591620717411303424' at [1]; INT64 was expected"),
        ({"steps": 1}, "'steps' is '1'; a list of INT64 was expected"),
        ({"more": 1}, "Unknown param 'more'"),
    ]:
        status, answer = _ask(engine, json.dumps(body | {"params": params}).encode())
        assert (status, message in answer["detail"]) == (400, True), answer


@pytest.mark.parametrize(
    ("datatype", "rows", "message"),
    [
        ("int32", [[1, 2], [3, 3e9]], "holds 3000000000 in row 1"),
        ("int64", [[1, 2], [3, 2**63]], "holds 9223372036854775808 in row 1"),
        ("float32", [[1, 2], [3, 1e300]], "holds 1e+300 in row 1"),
        ("float32", [[1, 2], [3, 16777217]], "holds 16777217 in row 1 (element 3)"),
        (
            "float32",
            [[0.5, -16777217]],
            "it would become -16777216, send a number that it can represent",
        ),
        ("float32", [[0.5, 9007199254740993]], "holds 9007199254740993 in row 0"),
        ("float64", [[1, 2**53 + 1]], "holds 9007199254740993 in row 0"),
        ("float64", [[0.5, 2**53 + 1]], "it would become 9007199254740992"),
        ("float64", [[0.5, 2**63 + 1]], "holds 9223372036854775809 in row 0"),
        ("float64", [[0.5, 2**64 + 1]], "holds 18446744073709551617 in row 0"),
        ("float32", [[0.5, 10**20]], "holds 100000000000000000000 in row 0"),
        ("int64", [[1, 2**70]], "holds 1180591620717411303424 in row 0"),
        ("float16", [[1, 2049]], "it would become 2048"),
        ("uint8", [[1, 256]], "holds 256 in row 0"),
        ("uint8", [[-1, 2]], "holds -1 in row 0"),
        ("float32", [[1, "2"]], "holds '2' in row 0"),
        ("int64", [[1, True]], "holds True in row 0"),
    ],
)
def test_an_mlflow_model_of_tensors_is_given_no_other_numbers(
    tmp_path: Path, datatype: str, rows: list[list[Any]], message: str
) -> None:
    model = save_echo(tmp_path, Schema([TensorSpec(np.dtype(datatype), (-1, 2))]))
    engine = Engine(mlflow_model.load(model, None), name="t", version="1", max_rows=8)
    for body in ({"inputs": rows}, {"instances": rows}):
        status, answer = _ask(engine, json.dumps(body).encode())
        assert (status, message in answer["detail"]) == (400, True), answer
    status, answer = _ask(engine, b'{"inputs": [[1, 2], [3, 4]]}')
    assert status == 200, answer
    assert [json.loads(row)[0] for row in answer["predictions"]] == [[1, 2], [3, 4]]
    if not isinstance(rows[-1][1], str | bool):
        csv = f"x,y\n{rows[-1][0]},{rows[-1][1]}\n".encode()
        expected = message.replace("in row 1", "in row 0").replace("(element 3)", "(element 1)")
        status, answer = _ask(engine, csv, Contract.SCORING_CSV)
        assert (status, expected in answer["detail"]) == (400, True), answer


@pytest.mark.parametrize("datatype", ["float16", "float32", "float64"])
def test_whole_numbers_that_a_float_holds_are_given(tmp_path: Path, datatype: str) -> None:
    exact = int(2 ** (np.finfo(datatype).nmant + 1))
    model = save_echo(tmp_path, Schema([TensorSpec(np.dtype(datatype), (-1, 2))]))
    engine = Engine(mlflow_model.load(model, None), name="t", version="1", max_rows=8)
    rows = [[exact, -exact], [exact + 2, 0.1]]
    status, answer = _ask(engine, json.dumps({"inputs": rows}).encode())
    assert status == 200, answer
    given = [json.loads(row)[0] for row in answer["predictions"]]
    assert given[0] == rows[0]
    assert given[1][0] == exact + 2


def test_whole_numbers_of_a_tensor_are_not_rounded_into_another_type(tmp_path: Path) -> None:
    model = save_echo(tmp_path, Schema([TensorSpec(np.dtype("float32"), (-1, 2))]))
    engine = Engine(mlflow_model.load(model, None), name="t", version="1", max_rows=8)
    head = {"name": "input_0", "datatype": "INT64", "shape": [1, 2]}
    body = json.dumps({"inputs": [head | {"data": [1, 16777217]}]}).encode()
    status, answer = _ask(engine, body, Contract.INFER)
    assert (status, "INT64" in answer["detail"] or "16777217" in answer["detail"]) == (400, True)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Plane]:
    """The model behind a gateway."""
    with plane() as dataplane:
        replica = dataplane.replica(
            format=ModelFormat.MLFLOW, model_dir=str(folder), entry=None, model="mixed"
        )
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


@pytest.mark.thorough
def test_every_language_of_the_gateway_refuses_in_the_same_words(served: Plane) -> None:
    body = json.dumps({"dataframe_records": [{"n": 2**63, "s": "a"}]}).encode()
    message = "column 'n' holds '9223372036854775808' in row 0; INT64 was expected: from -9223"

    def send(path: str, content: bytes, kind: str = "application/json") -> Answer:
        return served.call("POST", path, content, headers={"Content-Type": kind})

    answers = [
        send("/v1/digits/predict", body),
        send("/v1/digits/invocations", body),
        send("/endpoints/digits/invocations", body),
        send("/v1/digits/predict", b"n,s\n9223372036854775808,a\n", "text/csv"),
        send("/endpoints/digits/invocations", b"n,s\n9223372036854775808,a\n", "text/csv"),
        send("/v2/models/digits/infer", _infer(n=("UINT64", [2**63]), s=("BYTES", ["a"]))),
    ]
    assert [answer.status for answer in answers] == [400] * len(answers)
    for answer in answers:
        assert message in answer.json()["detail"]
        assert answer.json()["error"] == answer.json()["message"] == answer.json()["detail"]
