"""Formats, golden predictions and batches, without a process around them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipway.schemas.serving import (
    BatchingMode,
    Datatype,
    FieldSpec,
    GoldenPrediction,
    ModelFile,
    ModelFormat,
    ReplicaSpec,
    Signature,
)
from tests.workers.machines import ROOT
from tests.workers.serving import SECRET, linear_model
from workers.model_server.engine import Engine
from workers.model_server.errors import NotReady
from workers.model_server.files import fetch_files
from workers.model_server.formats import open_model
from workers.model_server.golden import check_golden, warm_up
from workers.model_server.tensors import TensorCodec
from workers.serving.wire import Contract, RequestFrame

pytestmark = pytest.mark.torch
SIGNATURE = Signature(
    inputs=[FieldSpec(name="x", datatype=Datatype.FP32, shape=[-1, 4])],
    outputs=[FieldSpec(name="y", datatype=Datatype.FP32, shape=[-1, 2])],
)


class Doubled(torch.nn.Module):
    """Twice the sum, twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two columns."""
        total = 2 * x.sum(1, keepdim=True)
        return torch.cat([total, total], 1)


class Counting(torch.nn.Module):
    """The sum through a layer, and how often it was called: it changes while it serves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
        self.register_buffer("calls", torch.zeros(1))
        self.calls: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two columns."""
        self.calls += 1
        total = self.layer(x).sum(1, keepdim=True)
        return torch.cat([total, self.calls.expand(x.shape[0], 1)], 1)


def stored(folder: Path, kind: ModelFormat) -> str:
    """Write the model in a format; returns the name of its file."""
    match kind:
        case ModelFormat.TORCHSCRIPT:
            torch.jit.save(torch.jit.script(Doubled()), str(folder / "model.pt"))
            return "model.pt"
        case ModelFormat.TORCH_EXPORT:
            rows = torch.export.Dim("rows", min=1, max=1024)
            program = torch.export.export(
                Doubled(), (torch.ones(3, 4),), dynamic_shapes={"x": {0: rows}}
            )
            torch.export.save(program, str(folder / "model.pt2"))
            return "model.pt2"
    linear_model(folder)
    return "model.onnx"


def spec(folder: Path, **changes: Any) -> ReplicaSpec:
    """The spec of a replica."""
    values = {
        "replica_id": "rep-1",
        "endpoint_id": "ep-1",
        "endpoint": "digits",
        "revision_id": "rev-1",
        "model": "doubled",
        "model_version": "1",
        "format": "onnx",
        "model_dir": str(folder),
        "entry": "model.onnx",
        "signature": SIGNATURE,
        "secret": SECRET,
    }
    return ReplicaSpec.model_validate(values | changes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in ModelFormat if kind != ModelFormat.MLFLOW])
def test_every_format_predicts_the_same(tmp_path: Path, kind: ModelFormat) -> None:
    model_spec = spec(tmp_path, format=kind, entry=stored(tmp_path, kind))
    model = open_model(model_spec, tmp_path)
    engine = Engine(model, name="digits", version="1", max_rows=8, batching=BatchingMode.ROWS)
    golden = GoldenPrediction(request={"inputs": [[1, 2, 3, 4]]}, predictions=[[20.0, 20.0]])
    assert warm_up(engine, model.signature, [golden]) > 0
    check_golden(engine, [golden])
    requests = [
        RequestFrame(at, Contract.SCORING, 0, b'{"inputs": [[%d, 0, 0, 0]]}' % at)
        for at in range(20)
    ]
    answers = engine.answer(requests)
    assert [json.loads(answer.body)["predictions"][0][0] for answer in answers] == [
        2.0 * n for n in range(20)
    ]


@pytest.mark.parametrize(
    ("golden", "message"),
    [
        ({"predictions": [[20.0, 20.1]]}, "[0][1] is 20.0; 20.1 was expected"),
        ({"predictions": [[20.0]]}, "[0] has 2 entries; 1 were expected"),
        ({"predictions": [["20", 20]]}, "[0][0] is 20.0; 20 was expected"),
        ({"request": {"inputs": [[1]]}}, "was rejected: Input 'x' has the shape"),
    ],
)
def test_a_replica_is_not_ready_when_a_golden_prediction_differs(
    tmp_path: Path, golden: dict[str, Any], message: str
) -> None:
    model = open_model(spec(linear_model(tmp_path)), tmp_path)
    engine = Engine(model, name="digits", version="1", max_rows=8)
    values = {"request": {"inputs": [[1, 2, 3, 4]]}, "predictions": [[20.0, 20.0]]} | golden
    with pytest.raises(NotReady) as refused:
        check_golden(engine, [GoldenPrediction.model_validate(values)])
    assert message in str(refused.value)


def test_one_bad_request_fails_nobody_else(tmp_path: Path) -> None:
    model = open_model(spec(linear_model(tmp_path)), tmp_path)
    engine = Engine(model, name="digits", version="1", max_rows=64, batching=BatchingMode.ROWS)
    bodies = [b'{"inputs": [[1, 2, 3, 4]]}', b'{"inputs": [[1, 2, 3]]}', b"{", b'{"inputs": []}']
    bodies += [b'{"instances": [[0, 0, 0, 1], [0, 0, 0, 2]]}']
    answers = engine.answer(
        [RequestFrame(n, Contract.SCORING, 0, body) for n, body in enumerate(bodies)]
    )
    assert [answer.status for answer in answers] == [200, 400, 400, 200, 200]
    assert json.loads(answers[4].body) == {"predictions": [[2.0, 2.0], [4.0, 4.0]]}


def test_a_model_whose_outputs_cannot_be_cut_answers_each_alone(tmp_path: Path) -> None:
    model = open_model(spec(linear_model(tmp_path)), tmp_path)
    predict = model.predict
    model.predict = lambda *given: predict(*given).sum(0, keepdims=True)  # type: ignore[method-assign]
    engine = Engine(model, name="digits", version="1", max_rows=64, batching=BatchingMode.ROWS)
    requests = [
        RequestFrame(n, Contract.SCORING, 0, b'{"inputs": [[%d, 0, 0, 0]]}' % n) for n in range(3)
    ]
    predictions = [json.loads(answer.body)["predictions"] for answer in engine.answer(requests)]
    assert predictions == [[[0.0, 0.0]], [[2.0, 2.0]], [[4.0, 4.0]]]


def test_a_model_that_raises_is_its_own_fault_and_says_so(tmp_path: Path) -> None:
    model = open_model(spec(linear_model(tmp_path)), tmp_path)

    def broken(*_: Any) -> Any:
        raise KeyError("weights")

    model.predict = broken  # type: ignore[method-assign,assignment]
    engine = Engine(model, name="digits", version="1", max_rows=64)
    answer = engine.answer([RequestFrame(1, Contract.SCORING, 0, b'{"inputs": [[1, 2, 3, 4]]}')])[0]
    assert answer.status == 500
    assert "KeyError" in json.loads(answer.body)["detail"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "../outside"}, "names a file outside its folder"),
        ({"path": "/etc/passwd"}, "names a file outside its folder"),
        ({"path": "missing"}, "missing of the model is missing"),
        ({"sha256": "0" * 64}, "model.onnx of the model does not match its digest"),
    ],
)
def test_files_are_checked_before_anything_is_loaded(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    linear_model(tmp_path)
    file = {"path": "model.onnx", "sha256": "1" * 64, "size_bytes": 1} | change
    with pytest.raises(NotReady, match=message):
        fetch_files(spec(tmp_path, files=[ModelFile.model_validate(file)]))


def test_numbers_are_not_bent_into_other_types() -> None:
    whole = Signature(inputs=[FieldSpec(name="x", datatype=Datatype.INT64, shape=[-1, 2])])
    codec = TensorCodec(whole)
    for body, fits in [
        (b'{"inputs":[[1,2]]}', True),
        (b'{"inputs":[[1,2.0]]}', True),
        (b'{"inputs":[[1,2.5]]}', False),
        (b'{"inputs":[[1,true]]}', False),
        (b'{"inputs":[[1,99999999999999999999]]}', False),
    ]:
        engine = Engine(_Echo(codec, whole), name="digits", version="1", max_rows=8)
        answer = engine.answer([RequestFrame(1, Contract.SCORING, 0, body)])[0]
        assert (answer.status == 200) is fits, (body, answer.body)


class Echo(torch.nn.Module):
    """Gives back the very tensor it was given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input."""
        return x


class Remembering(torch.nn.Module):
    """Gives back what it was given before: it keeps its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.zeros(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input of the call before."""
        previous, self.before = self.before, x
        return previous


def torchscript(folder: Path, module: torch.nn.Module, **signature: Any) -> Any:
    """Write a module, and open it as a replica does."""
    torch.jit.save(torch.jit.script(module.eval()), str(folder / "model.pt"))
    changes = {"format": "torchscript", "entry": "model.pt"} | signature
    return open_model(spec(folder, **changes), folder)


ODD = [
    *(b"[[1,2,3,4]]", b"[[1.5,-0.0,1e38,1e-45]]", b"[[16777217,3,3,0.1]]", b"[ [1, 2,3 ,4 ] ]"),
    *(b"[[1,2,3,4],[5,6,7,8]]", b"[[1,2,3]]", b"[[1,2,3,4,5]]", b"[[]]", b"[]", b"[1,2,3,4]"),
    *(b"[[1,2,3,null]]", b"[[1,2,3,true]]", b"[[1,2,3,false]]", b'[[1,2,3,"4"]]', b"[[1,2,3,[4]]]"),
    *(b"[[1,2,3,1e39]]", b"[[1,2,3,1e400]]", b"[[1,2,3,NaN]]", b"[[1,2,3,9223372036854775808]]"),
    *(
        b"[[1,2,3,16777216]]",
        b"[[-16777217,2,3,4]]",
        b"[[1,2,3,9007199254740993]]",
        b"[[1e8,2,3,4]]",
    ),
    *(b"[[1,2,3,4.0]]", b"[[1,2,3,4.5]]", b"[[1,2,3,4e0]]", b"{}", b'{"x":[[1,2,3,4]]}', b"null"),
    *(b'"1234"', b'[["1","2","3","4"]]', b'[{"1":1,"2":2,"3":3,"4":4}]', b"7", b"[[1,2,3,4]"),
    *(b'[[1,2,3,4]],"params":{}', b'[[1,2,3,4]],"inputs":[[5,6,7,8]]', b"[[1,2,3,4]]} ", b""),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP64, Datatype.INT64, Datatype.FP16])
def test_who_asks_alone_is_told_what_all_are_told(tmp_path: Path, datatype: Datatype) -> None:
    whole = Signature(inputs=[FieldSpec(name="x", datatype=datatype, shape=[-1, 4])])
    model = torchscript(tmp_path, Echo(), signature=whole)
    engine = Engine(model, name="digits", version="1", max_rows=8, batching=BatchingMode.ROWS)
    other = RequestFrame(2, Contract.SCORING, 0, b'{"inputs":[[9,9,9,9]]}')
    statuses = set()
    for odd in ODD:
        request = RequestFrame(1, Contract.SCORING, 0, b'{"inputs":%b}' % odd)
        (alone,), (together, _) = engine.answer([request]), engine.answer([request, other])
        assert (alone.status, alone.body) == (together.status, together.body), odd
        statuses.add(alone.status)
    assert {200, 400} <= statuses


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_keeps_its_inputs_finds_them_as_they_were(tmp_path: Path) -> None:
    engine = Engine(torchscript(tmp_path, Remembering()), name="r", version="1", max_rows=8)
    predictions = []
    for number in range(1, 4):
        request = RequestFrame(number, Contract.SCORING, 0, b'{"inputs":[[%d,0,0,0]]}' % number)
        predictions.append(json.loads(engine.answer([request])[0].body)["predictions"][0][0])
    assert predictions == [0.0, 1.0, 2.0]


class _Echo:
    """A model that gives back what it takes."""

    platform = "echo"

    def __init__(self, codec: Any, signature: Signature) -> None:
        self.codec = codec
        self.signature = signature

    def predict(self, inputs: dict[str, Any], params: dict[str, Any]) -> Any:
        """Return the input."""
        values = inputs["x"]
        assert values.dtype == np.int64
        return values


@pytest.mark.filterwarnings("ignore")
def test_torchscript_as_one_graph_gives_the_same_to_the_last_bit_and_keeps_its_state(
    tmp_path: Path,
) -> None:
    torch.manual_seed(3)
    module = Counting().eval()
    torch.jit.save(torch.jit.script(module), str(tmp_path / "model.pt"))
    model = open_model(spec(tmp_path, format="torchscript", entry="model.pt"), tmp_path)
    rows = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    for calls in (1, 2, 3):
        predicted = model.predict({"x": rows}, {})
        with torch.inference_mode():
            expected = module(torch.from_numpy(rows)).numpy()
        assert predicted.tobytes() == expected.tobytes()
        assert predicted[0, 1] == calls


@pytest.mark.filterwarnings("ignore")
def test_a_large_torchscript_module_is_left_whole_and_gives_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 4096, dropout=0.0, batch_first=True).eval()
    x = torch.rand(3, 5, 128)
    with torch.inference_mode():
        traced = torch.jit.trace(layer, x, check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(tmp_path / "model.pt"))
        expected = traced(x).numpy()
    signature = Signature(inputs=[FieldSpec(name="x", datatype=Datatype.FP32, shape=[-1, 5, 128])])
    model = open_model(
        spec(tmp_path, format="torchscript", entry="model.pt", signature=signature), tmp_path
    )
    for _ in range(3):
        np.testing.assert_array_equal(model.predict({"x": x.numpy()}, {}), expected)


def test_freed_memory_is_kept_for_the_next_batch() -> None:
    program = (
        "import resource\n"
        "from workers.model_server.memory import retain_freed_memory\n"
        "assert retain_freed_memory()\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20): [bytearray(8 << 20) for _ in range(4)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults()\n"
        "print(faults())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # 163,200 where it is given back each time.
    assert int(done.stdout) < 2_000


class Known(torch.nn.Module):
    """Answers with what it has learnt, whatever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.learnt = torch.nn.Parameter(torch.ones(1, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return its parameter as it is, and a sum."""
        return self.learnt, x.sum(1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [ModelFormat.TORCHSCRIPT, ModelFormat.TORCH_EXPORT])
def test_a_model_may_answer_with_a_parameter(tmp_path: Path, kind: ModelFormat) -> None:
    rows = np.ones((1, 4), np.float32)
    if kind == ModelFormat.TORCHSCRIPT:
        torch.jit.save(torch.jit.script(Known()), str(tmp_path / "model"))
    else:
        torch.export.save(
            torch.export.export(Known(), (torch.from_numpy(rows),)), str(tmp_path / "model")
        )
    model = open_model(spec(tmp_path, format=kind, entry="model"), tmp_path)
    learnt, summed = model.predict({"x": rows}, {})
    assert learnt.tolist() == [[1.0, 1.0]]
    assert summed.tolist() == [4.0]
