"""Pipelines in Python and YAML: what they say, what is refused, and steps as functions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway import step_job
from slipway.errors import InvalidInput
from slipway.pipeline_files import checked, checked_parameters, read_pipeline
from slipway.pipeline_graphs import draw
from slipway.schemas.pipeline_checks import dependencies, ordered
from slipway.schemas.pipelines import PipelineIn

FLOW = '''
from pathlib import Path
from typing import NamedTuple

import slipway
from slipway import pipelines


class Trained(NamedTuple):
    model: Path
    accuracy: float


@slipway.step
def prepare(rows: int) -> Path:
    path = Path("data.txt")
    path.write_text("x" * rows)
    return path


@slipway.step(tier="small", retries=1)
def train(data: Path, lr: float = 0.5) -> Trained:
    Path("model.txt").write_text(data.read_text() * int(lr * 10))
    return Trained(Path("model.txt"), lr)


@slipway.step
def best(values: list[float]) -> float:
    return max(values)


@slipway.step(cache=False)
def report(state: str) -> None:
    Path("state.txt").write_text(state)


@slipway.pipeline
def digits(rows: int = 10, lrs: list[float] = [0.1, 0.2]):
    """Train on digits."""
    data = prepare(rows)
    trained = train.map(lr=lrs)(data)
    top = best(trained.accuracy)
    good = pipelines.approval(f"Accuracy {top}?", when=top >= 0.15)
    registered = pipelines.register("digits", "runs:/x/model", after=[good])
    pipelines.promote("digits", registered.version, stage="Production")
    report.options(run_on="failure")(trained.state)


@slipway.pipeline
def tiny(lr: float = 0.5):
    return train(prepare(3), lr)
'''
YAML = """
name: digits
parameters:
  lr: 0.1
  rows: {type: integer}
steps:
  prepare:
    script: prepare.py
    inputs: {rows: "${parameters.rows}"}
    outputs: {data: {type: file, path: data.csv}, rows: integer}
  train:
    script: steps/train.py
    args: ["--data=${steps.prepare.outputs.data}"]
    inputs: {lr: "${parameters.lr}"}
    when: ${steps.prepare.outputs.rows} > 10
    outputs: [accuracy]
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A file with two pipelines."""
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return path


def _step(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "script": "a.py"} | fields


def _refusal(*steps: dict[str, Any], **fields: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        checked({"name": "p", "steps": list(steps)} | fields)
    assert refused.value.next_step
    return refused.value


def test_a_pipeline_in_python_is_the_steps_that_its_function_calls(flow: Path) -> None:
    pipeline = read_pipeline(f"{flow}::digits", folder=flow.parent)
    assert (pipeline.name, pipeline.description) == ("digits", "Train on digits.")
    assert pipeline.parameters["rows"].model_dump() == {"type": "integer", "default": 10}
    assert pipeline.parameters["lrs"].type == "array"
    names = [step.name for step in ordered(pipeline)]
    assert names.index("prepare") < names.index("train") < names.index("best")
    train = pipeline.step("train")
    assert (train.script, train.tier, train.retries) == ("flow.py::train", "small", 1)
    assert train.foreach == "${parameters.lrs}"
    assert train.inputs == {"data": "${steps.prepare.outputs.result}", "lr": "${item}"}
    assert {name: output.type for name, output in train.outputs.items()} == {
        "model": "file",
        "accuracy": "number",
    }
    approval = pipeline.step("approval")
    assert approval.when == "${steps.best.outputs.result} >= 0.15"
    assert approval.message == "Accuracy ${steps.best.outputs.result}?"
    assert dependencies(pipeline.step("register")) == {"approval": []}
    assert dependencies(pipeline.step("promote")) == {"register": ["version"]}
    assert pipeline.step("report").run_on == "failure"
    assert pipeline.step("report").cache is False


def test_one_of_several_pipelines_must_be_named(flow: Path) -> None:
    for source in (str(flow), f"{flow}::digit"):
        with pytest.raises(InvalidInput, match="pipeline") as refused:
            read_pipeline(source, folder=flow.parent)
        assert "::digits" in (refused.value.next_step or "")
    assert read_pipeline(f"{flow}::tiny", folder=flow.parent).name == "tiny"


def test_code_outside_of_the_folder_is_refused(flow: Path, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    with pytest.raises(InvalidInput, match="outside of the code folder") as refused:
        read_pipeline(f"{flow}::tiny", folder=folder)
    assert refused.value.field == "steps.prepare.script"


def test_a_file_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(InvalidInput, match="ZeroDivisionError: division by zero"):
        read_pipeline(str(tmp_path / "bad.py"), folder=tmp_path)
    for name, content, words in (
        ("none.yaml", "", "has no steps"),
        ("twice.yaml", "steps:\n  a: {script: x}\n  a: {script: y}\n", "a is there twice"),
        ("broken.yaml", "steps: [", "line 1"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidInput, match=words):
            read_pipeline(str(tmp_path / name))
    with pytest.raises(InvalidInput, match="No such file"):
        read_pipeline(str(tmp_path / "gone.yaml"))


def test_a_value_of_a_run_cannot_be_read_before_it(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(
        "import slipway\n@slipway.step\ndef a() -> int: return 1\n"
        "@slipway.pipeline\ndef eager():\n    if a() > 0:\n        a()\n"
    )
    with pytest.raises(InvalidInput, match="is not known before the run"):
        read_pipeline(str(tmp_path / "eager.py"), folder=tmp_path)


def test_a_pipeline_in_yaml_is_the_same_contract(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(YAML)
    pipeline = read_pipeline(str(tmp_path / "digits.yaml"))
    assert pipeline.parameters["lr"].model_dump() == {"type": "number", "default": 0.1}
    assert dependencies(pipeline.step("train")) == {"prepare": ["data", "rows"]}
    assert pipeline.step("train").outputs["accuracy"].type == "any"
    assert PipelineIn.model_validate_json(pipeline.model_dump_json()) == pipeline


@pytest.mark.parametrize(
    ("steps", "field", "words"),
    [
        ([_step("a", after=["b"]), _step("b", after=["a"])], "steps.", "in a cycle: "),
        ([_step("a", after=["a"])], "steps.a", "a → a"),
        ([_step("a", after=["c"])], "steps.a.after", "There is no step c."),
        ([_step("a"), _step("a")], "steps", "Two steps are called a."),
        ([_step("a", inputs={"x": "${steps.b.outputs.y}"})], "steps.a.inputs", "no step b"),
        (
            [_step("a"), _step("b", inputs={"x": "${steps.a.outputs.y}"})],
            "steps.b.inputs",
            "Step a has no output y.",
        ),
        ([_step("a", inputs={"x": "${HOME}"})], "steps.a.inputs", "${HOME} is no reference."),
        ([_step("a", inputs={"x": "${parameters.y}"})], "steps.a.inputs", "no parameter y"),
        ([_step("a", inputs={"x": "${item}"})], "steps.a.inputs", "has no meaning"),
        ([_step("a", foreach=[])], "steps.a.foreach", "is an empty list"),
        ([_step("a", foreach="x")], "steps.a.foreach", "not a list"),
        ([_step("a", foreach=list(range(101)))], "steps.a.foreach", "at most 100"),
        ([_step("a", when="always")], "steps.a.when", "is no condition"),
        ([_step("a", when="${parameters.x} > y")], "steps.a.when", "neither a reference nor"),
        ([_step("a", run_on="failure")], "steps.a.after", "but has none"),
        ([_step("a", model="m")], "steps.a.model", "A step of kind job has no model."),
        ([{"name": "a"}], "steps.a.script", "Step a has no script."),
        ([{"name": "a", "kind": "approval", "tier": "t"}], "steps.a.tier", "has no tier"),
        ([{"name": "a", "kind": "promote", "model": "m", "version": 1}], "steps.a.stage", "exact"),
        ([_step("a", kind="spark")], "steps.a.kind", "not valid"),
        ([_step("a", retry=3)], "steps.a.retry", "not valid"),
        ([_step("1a")], "steps.1a.name", "not valid"),
        ([_step("a", outputs={"x": {"path": "y"}})], "steps.a.outputs.x", "has a path"),
        ([], "steps", "not valid"),
    ],
)
def test_what_can_never_run_is_refused_with_the_field(
    steps: list[dict[str, Any]], field: str, words: str
) -> None:
    error = _refusal(*steps)
    assert (error.field or "").startswith(field), error
    assert words in error.message, error


def test_a_similar_name_is_suggested() -> None:
    steps = [_step("prepare", outputs={"data": {}}), _step("b", after=["prepaer"])]
    assert _refusal(*steps).next_step == "Did you mean prepare?"
    steps[1] = _step("b", inputs={"x": "${steps.prepare.outputs.dta}"})
    assert _refusal(*steps).next_step == "Did you mean data?"


def test_a_step_on_failure_cannot_use_outputs() -> None:
    steps = [
        _step("a", outputs={"x": {}}),
        _step("b", run_on="failure", inputs={"x": "${steps.a.outputs.x}"}),
    ]
    assert "may run without the outputs of a" in _refusal(*steps).message


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({}, "parameters.rows", "has no value"),
        ({"rows": "3"}, "parameters.rows", 'is "3", not a value of type integer'),
        ({"rows": True}, "parameters.rows", "is true, not a value of type integer"),
        ({"rows": 3, "row": 3}, "parameters.row", "has no parameter row"),
    ],
)
def test_parameters_are_typed(given: dict[str, Any], field: str, words: str) -> None:
    pipeline = checked(
        {"name": "p", "parameters": {"rows": {"type": "integer"}}, "steps": [_step("a")]}
    )
    assert checked_parameters(pipeline, {"rows": 3}) == {"rows": 3}
    with pytest.raises(InvalidInput, match=words) as refused:
        checked_parameters(pipeline, given)
    assert refused.value.field == field


def test_graphs_show_steps_and_what_flows_between_them(flow: Path) -> None:
    pipeline = read_pipeline(f"{flow}::digits", folder=flow.parent)
    assert "train     flow.py::train; after prepare (result); for each item" in draw(pipeline)
    assert "-->|accuracy|" in draw(pipeline, "mermaid")
    assert '"prepare" -> "train" [label="result"];' in draw(pipeline, "dot")


def test_steps_are_functions_outside_of_a_pipeline(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(flow.parent)
    monkeypatch.syspath_prepend(flow.parent)
    monkeypatch.delitem(sys.modules, "flow", raising=False)
    status = step_job.main(["flow.py::prepare"])
    assert status == 2  # it needs rows
    flow_module = sys.modules.pop("flow")
    assert flow_module.tiny(0.5).accuracy == 0.5
    assert flow_module.train.map(lr=[0.1, 0.2])(Path("data.txt")).accuracy == [0.1, 0.2]


def test_a_step_job_converts_inputs_and_reports_outputs(
    flow: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(flow.parent)
    monkeypatch.setenv("SLIPWAY_WORKLOAD", "wl_x")
    monkeypatch.delitem(sys.modules, "flow", raising=False)
    params = {"data": str(flow), "lr": "0.1"}
    monkeypatch.setenv("SLIPWAY_PARAMS", json.dumps(params))
    assert step_job.main(["flow.py::train"]) == 0
    assert '{"model": "model.txt", "accuracy": 0.1}' in capsys.readouterr().out
    monkeypatch.setenv("SLIPWAY_PARAMS", json.dumps({"data": str(flow), "lr": "fast"}))
    assert step_job.main(["flow.py::train"]) == 2
    assert "lr is 'fast', not a value of type number" in capsys.readouterr().err
    assert step_job.main(["flow.py::missing"]) == 2
    assert "flow.py has no function missing." in capsys.readouterr().err
    sys.modules.pop("flow")
