"""Random rows, sent in every form, predicted, captured, selected, exported: the same values.

The inputs of the model, the selected dataset and the exports (CSV, JSON lines) are compared with
what was sent.
"""

import csv
import io
import json
import math
import struct
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as csv_files
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from portal.datasets.bytes import content_of, entries_of
from portal.datasets.models import Version
from portal.endpoints.models import Revision
from portal.monitoring.exports_and_erasure import run_pending
from tests.portal.monitoring.captured import Traffic
from tests.workers.model_server.echo import save_echo
from workers.model_server.engine import Engine
from workers.serving.wire import Contract, RequestFrame

with warnings.catch_warnings():
    # MLflow warns of its own types when it is imported.
    warnings.simplefilter("ignore")
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    from workers.model_server.formats import mlflow_model

pytestmark = pytest.mark.filterwarnings("ignore")
_AT_ONCE: Final = 25
_CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))
_TEXTS = st.sampled_from(
    [
        "",
        "007",
        "NA",
        "None",
        "null",
        "true",
        "1e5",
        "9007199254740993",
        " x ",
        'a"b,c',
        "日本",
        "-0",
    ]
) | st.text(_CHARACTERS, max_size=12)
_DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "s": _TEXTS,
    "id": st.integers(-(2**63), 2**63 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "d": _DOUBLES,
    "f32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "t": _TEXTS,
    "at": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(datetime.isoformat),  # noqa: DTZ001
}
_REQUIRED: Final = ("n", "s")
_SCHEMA: Final[list[ColSpec | TensorSpec]] = [
    ColSpec(DataType.long, "n"),
    ColSpec(DataType.string, "s"),
    ColSpec(DataType.long, "id", required=False),
    ColSpec(DataType.integer, "i32", required=False),
    ColSpec(DataType.double, "d", required=False),
    ColSpec(DataType.float, "f32", required=False),
    ColSpec(DataType.boolean, "b", required=False),
    ColSpec(DataType.string, "t", required=False),
    ColSpec(DataType.datetime, "at", required=False),
]
_DATATYPES: Final = {"n": "INT64", "s": "BYTES", "id": "INT64", "i32": "INT32", "d": "FP64"} | {
    "f32": "FP32", "b": "BOOL", "t": "BYTES", "at": "BYTES"
}  # fmt: skip
_ARROW: Final = {
    "INT64": pa.int64(), "INT32": pa.int32(), "FP64": pa.float64(), "FP32": pa.float64(),
    "BOOL": pa.bool_(), "BYTES": pa.string(),
}  # fmt: skip
Rows = list[dict[str, Any]]
Form = Callable[[Rows], bytes]


def _json(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _records(rows: Rows) -> bytes:
    return _json({"dataframe_records": rows})


def _instances(rows: Rows) -> bytes:
    return _json({"instances": rows})


def _split(rows: Rows) -> bytes:
    data = [list(row.values()) for row in rows]
    return _json({"dataframe_split": {"columns": list(rows[0]), "data": data}})


def _columns(rows: Rows) -> bytes:
    return _json({"inputs": {name: [row[name] for row in rows] for name in rows[0]}})


def _csv(rows: Rows) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, quoting=csv.QUOTE_ALL)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(map(_cell, row.values()))
    return sink.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _tensors(rows: Rows) -> bytes:
    inputs = [
        {
            "name": name,
            "datatype": _DATATYPES[name],
            "shape": [len(rows)],
            "data": [row[name] for row in rows],
        }
        for name in rows[0]
    ]
    return _json({"inputs": inputs})


_FORMS: Final[dict[str, tuple[Form, Contract]]] = {
    "records": (_records, Contract.SCORING),
    "instances": (_instances, Contract.SCORING),
    "split": (_split, Contract.SCORING),
    "columns": (_columns, Contract.SCORING),
    "csv": (_csv, Contract.SCORING_CSV),
    "tensors": (_tensors, Contract.INFER),
}


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, Rows]:
    """Draw a form and rows; the columns of a request are the same in all of its rows."""
    form = draw(st.sampled_from(sorted(_FORMS)))
    optional = draw(st.lists(st.sampled_from([*_VALUES][1:]), unique=True, max_size=4))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        row = {"n": 0, "s": draw(_VALUES["s"])}
        for name in optional:
            # Tensors have no missing values.
            some = _VALUES[name] if form == "tensors" else _VALUES[name] | st.none()
            row[name] = draw(some)
        rows.append(row)
    return form, rows


_MANY = st.lists(_requests(), min_size=_AT_ONCE, max_size=_AT_ONCE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> mlflow_model.MlflowModel:
    """A model with a column of each type, which answers with what it was given."""
    folder = save_echo(tmp_path_factory.mktemp("echo"), Schema(_SCHEMA))
    return mlflow_model.load(folder, None)


@pytest.fixture(scope="module")
def engine(model: mlflow_model.MlflowModel) -> Engine:
    """It, as a replica serves it."""
    return Engine(model, name="echo", version="1", max_rows=64)


@pytest.fixture
def declared(traffic: Traffic, model: mlflow_model.MlflowModel) -> Traffic:
    """Traffic of an endpoint with the signature of that model."""
    signature = model.signature.model_dump(mode="json")
    Revision.objects.filter(pk=traffic.revision_id).update(signature=signature)
    return traffic


def _given(engine: Engine, form: str, body: bytes) -> tuple[Rows, Any]:
    """Return what the model was given, and its answer."""
    contract = _FORMS[form][1]
    answer = engine.answer([RequestFrame(1, contract, 0, body)])[0]
    content = json.loads(answer.body)
    assert answer.status == 200, content
    outputs = (
        content["outputs"][0]["data"] if contract is Contract.INFER else content["predictions"]
    )
    return [json.loads(output)[0] for output in outputs], content


def _is_same(value: Any, sent: Any, name: str, form: str) -> bool:
    if sent is None and isinstance(value, float):
        # Models are given missing numbers with a point as NaN.
        return math.isnan(value)
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        return bool(value == datetime.fromisoformat(sent))
    if form == "csv" and sent == "" and name not in _REQUIRED:
        # An empty cell is a missing value.
        return value is None
    if sent is None or isinstance(sent, bool | str):
        return type(value) is type(sent) and bool(value == sent)
    if name == "f32":
        return struct.pack("f", value) == struct.pack("f", sent)
    return math.copysign(1, value) == math.copysign(1, sent) if not sent else bool(value == sent)


def _as_sent(given: Any, sent: Any, name: str) -> Any:
    return datetime.fromisoformat(given) if name == "at" and given is not None else given


def _exported(traffic: Traffic, file_format: str) -> bytes:
    answer: Any = traffic.api.get(f"{traffic.root}/predictions/export?format={file_format}")
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def _json_rows(traffic: Traffic) -> dict[int, dict[str, Any]]:
    lines = map(json.loads, _exported(traffic, "jsonl").splitlines())
    return {line["inputs"]["n"]: line["inputs"] for line in lines}


def _csv_rows(traffic: Traffic) -> dict[int, dict[str, Any]]:
    types = {f"in.{name}": _ARROW[kind] for name, kind in _DATATYPES.items()}
    options = csv_files.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )  # fmt: skip
    parsing = csv_files.ParseOptions(newlines_in_values=True)
    file = pa.BufferReader(_exported(traffic, "csv"))
    table = csv_files.read_csv(file, parse_options=parsing, convert_options=options)
    columns = [name for name in table.column_names if name.startswith("in.")]
    rows = table.select(columns).rename_columns([name[3:] for name in columns]).to_pylist()
    return {row["n"]: row for row in rows}


def _round_trip(
    traffic: Traffic, engine: Engine, folder: Path, many: list[tuple[str, Rows]], dataset: str
) -> None:
    sent: dict[int, tuple[str, dict[str, Any]]] = {}
    for form, rows in many:
        for row in rows:
            row["n"] = 2**53 + len(sent)
            sent[row["n"]] = (form, row)
        body = _FORMS[form][0](rows)
        given, answer = _given(engine, form, body)
        for row, inputs in zip(rows, given, strict=True):
            for name, value in row.items():
                assert _is_same(_as_sent(inputs[name], value, name), value, name, form), (
                    form,
                    name,
                    value,
                )
        traffic.capture([body], [answer], contract=_FORMS[form][1])
    traffic.look()
    traffic.post("selections", {"dataset": dataset, "only_labelled": False}, status=202)
    run_pending()
    assert traffic.get("selections")["items"][0]["reason"] == ""
    version = Version.objects.get(dataset__name=dataset)
    file = folder / f"{dataset}.parquet"
    file.write_bytes(b"".join(content_of(entries_of(version, "predictions.parquet"))))
    selected = {row["n"]: row for row in pq.read_table(file).to_pylist()}
    for rows_by_number in (selected, _json_rows(traffic), _csv_rows(traffic)):
        for number, (form, row) in sent.items():
            for name, value in row.items():
                chosen = rows_by_number[number][name]
                chosen = _as_sent(chosen, value, name) if isinstance(chosen, str) else chosen
                assert _is_same(chosen, value, name, form), (form, name, value, chosen)


def _check(traffic: Traffic, engine: Engine, folder: Path, **options: Any) -> None:
    counter = iter(range(10**6))

    @settings(
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **options,
    )
    @given(_MANY)
    def check(many: list[tuple[str, Rows]]) -> None:
        traffic.forget()
        _round_trip(traffic, engine, folder, many, f"selected-{next(counter)}")

    check()


@pytest.mark.thorough
def test_random_predictions_are_selected_as_they_were_sent(
    declared: Traffic, engine: Engine, tmp_path: Path
) -> None:
    _check(
        declared, engine, tmp_path,
        max_examples=3, derandomize=True, database=None, phases=[Phase.generate],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_two_thousand_random_predictions_are_selected_as_they_were_sent(
    declared: Traffic, engine: Engine, tmp_path: Path, part: int
) -> None:
    """The examples of each part are random, so parts of several runs add up."""
    _check(declared, engine, tmp_path, max_examples=20, database=None, print_blob=True)


@pytest.mark.thorough
def test_an_empty_cell_of_required_text_is_selected_as_empty_text(
    declared: Traffic, engine: Engine, tmp_path: Path
) -> None:
    rows = [{"n": 0, "s": "", "t": ""}, {"n": 0, "s": "007", "t": "1e5"}]
    _round_trip(declared, engine, tmp_path, [("csv", rows)], "empty")
    shown = sorted(row["inputs"]["s"] for row in declared.get("predictions")["items"])
    assert shown == ["", "007"]
