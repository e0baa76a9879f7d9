"""Sweeps as steps of pipelines in Python and YAML: what they say, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from slipway.errors import InvalidInput
from slipway.pipeline_files import checked, read_pipeline
from slipway.pipeline_graphs import draw
from slipway.pipelines import sweep
from slipway.schemas.pipeline_checks import dependencies, ordered, outputs_of
from slipway.schemas.pipelines import StepIn

FLOW = """
from pathlib import Path

import slipway
from slipway import pipelines


@slipway.step
def prepare(rows: int) -> Path: ...


@slipway.step(tier="small")
def train(data: Path, lr: float) -> None: ...


@slipway.pipeline
def digits(rows: int = 10, most: float = 0.1):
    data = prepare(rows)
    tuned = pipelines.sweep(
        "steps/train.py",
        inputs={"data": data},
        parameters={"lr": f"loguniform(1e-4,{most})", "layers": [2, 4]},
        metric="accuracy:max",
        trials=8,
        outputs={"model": {"type": "file", "path": "model"}, "recall": "number"},
        tier="small",
    )
    again = pipelines.sweep(
        train,
        parameters={"lr": "uniform(0,1)"},
        metric="loss:min",
        inputs={"data": data},
        when=tuned.recall > 0.5,
    )
    pipelines.register("digits", tuned.model, when=tuned.best_value >= again.best_value)
    pipelines.script("report.py", inputs={"sweep": tuned.sweep, "best": again.parameters})
"""
YAML = """
name: digits
parameters: {most: 0.1}
steps:
  tune:
    kind: sweep
    script: train.py
    parameters:
      lr: loguniform(1e-4,${parameters.most})
      optimizer: {type: choice, choices: [sgd, adam]}
    metric: {name: accuracy, goal: max}
    outputs: [recall]
"""


def _sweep(**fields: Any) -> dict[str, Any]:
    return {
        "name": "tune",
        "kind": "sweep",
        "script": "train.py",
        "parameters": {"lr": "loguniform(1e-4,1e-1)"},
        "metric": "accuracy:max",
    } | fields


def test_a_sweep_in_python_is_a_step_with_the_outputs_of_its_best_trial(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    pipeline = read_pipeline(str(tmp_path / "flow.py"), folder=tmp_path)
    tune, again = pipeline.step("train"), pipeline.step("train-2")
    assert (tune.kind, tune.script, tune.trials, tune.tier) == (
        "sweep",
        "steps/train.py",
        8,
        "small",
    )
    assert tune.parameters == {"lr": "loguniform(1e-4,${parameters.most})", "layers": [2, 4]}
    assert dependencies(tune) == {"prepare": ["result"]}
    assert list(outputs_of(tune)) == [
        *("best_value", "parameters", "best_job", "best_run", "model", "recall")
    ]
    assert (again.script, again.tier) == ("flow.py::train", "small")
    assert again.when == "${steps.train.outputs.recall} > 0.5"
    assert pipeline.step("report").inputs == {
        "sweep": "${steps.train.sweep}",
        "best": "${steps.train-2.outputs.parameters}",
    }
    assert [step.name for step in ordered(pipeline)].index("register") > 1
    assert "train     sweep of steps/train.py; after prepare (result)" in draw(pipeline)
    with pytest.raises(InvalidInput, match="exists only in a pipeline"):
        sweep("train.py", parameters={"lr": "uniform(0,1)"}, metric="accuracy:max")


def test_a_sweep_in_yaml_is_the_same_contract(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(YAML)
    tune = read_pipeline(str(tmp_path / "digits.yaml")).step("tune")
    assert list(outputs_of(tune))[-1] == "recall"
    assert StepIn.model_validate_json(tune.model_dump_json()) == tune


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"parameters": {"lr": "fast"}}, "parameters.lr", "fast is no range."),
        ({"parameters": {"lr": 3}}, "parameters.lr", "3 is no range."),
        ({"parameters": {"lr": {"type": "float", "low": 1}}}, "parameters.lr", "low and high"),
        ({"parameters": {"lr": "int(1,2) if opt=sgd"}}, "", "lr depends on opt"),
        ({"parameters": {}}, "parameters", "Step tune has no parameters."),
        ({"inputs": {"lr": 1}}, "parameters.lr", "in parameters and in inputs"),
        ({"metric": None}, "metric", "Step tune has no metric."),
        ({"metric": ["a"]}, "metric", "has no goal"),
        ({"metric": {"name": "a", "goal": "up"}}, "metric.goal", "'min' or 'max'"),
        ({"constraints": ["size"]}, "constraints", "no bound of a metric"),
        ({"trials": "many"}, "trials", "valid integer"),
        ({"algorithm": "grid"}, "", "grid needs countable values"),
        ({"algorithm": "best"}, "algorithm", "not valid"),
        ({"outputs": {"parameters": {}}}, "outputs.parameters", "Every step of kind sweep has"),
        ({"outputs": {"m": {"type": "file"}}}, "outputs.m", "has no path"),
        ({"outputs": {"m": {"type": "string"}}}, "outputs.m", "is of type string"),
        ({"model": "digits"}, "model", "A step of kind sweep has no model."),
        ({"kind": "job"}, "metric", "A step of kind job has no metric."),
        ({"parameters": {"lr": "int(1,${steps.x.outputs.y})"}}, "parameters", "no step x"),
        ({"parameters": {"lr": "int(1,${item})"}}, "parameters", "has no meaning"),
    ],
)
def test_what_can_be_no_sweep_is_refused_with_the_field(
    fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked({"name": "p", "steps": [_sweep(**fields)]})
    assert refused.value.field == f"steps.tune.{field}".rstrip(".")
    assert words in refused.value.message
    assert refused.value.next_step
