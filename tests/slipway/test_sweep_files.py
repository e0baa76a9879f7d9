"""Ranges as text, and sweeps as YAML, ours and W&B's."""

from pathlib import Path

import pytest

from slipway.errors import InvalidInput
from slipway.parameter_spaces import is_range, parse_constraint, parse_metric, parse_space
from slipway.sweep_files import read_sweep_file

WANDB = """
program: train.py
project: digits
method: bayes
metric:
  name: accuracy
  goal: maximize
run_cap: 12
parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  dropout: {min: 0.1, max: 0.5}
  layers: {min: 1, max: 8}
  optimizer: {values: [sgd, adam]}
  epochs: {value: 3}
early_terminate: {type: hyperband, min_iter: 2, eta: 4}
command: ["${env}", "${interpreter}", "${program}", "${args}"]
"""


def test_a_wandb_file_works_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(WANDB)
    file = read_sweep_file(path)
    assert (file.script, file.algorithm, file.trials) == ("train.py", "tpe", 12)
    assert [(metric.name, metric.goal) for metric in file.metrics] == [("accuracy", "max")]
    assert file.params == {"epochs": "3"}
    assert (file.scheduler, file.min_values, file.eta) == ("asha", 2, 4)
    assert file.ignored == ("project",)
    lr, layers = file.parameters["lr"], file.parameters["layers"]
    assert (lr.type, lr.low, lr.high, lr.log) == ("float", 0.0001, 0.1, True)
    assert (layers.type, file.parameters["dropout"].type) == ("int", "float")
    assert file.parameters["optimizer"].choices == ["sgd", "adam"]


def test_the_last_comparison_of_wandb_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("early_terminate: {type: hyperband, max_iter: 27, s: 2}")
    file = read_sweep_file(path)
    assert (file.scheduler, file.min_values, file.eta) == ("asha", 3, 3)
    path.write_text("scheduler: median\nmin_values: 5")
    file = read_sweep_file(path)
    assert (file.scheduler, file.min_values, file.eta) == ("median", 5, None)


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("early_terminate: {type: hyperband}", "early_terminate", "has no min_iter"),
        ("early_terminate: {type: envelope}", "early_terminate", "is not {type: hyperband"),
        ("early_terminate: {type: hyperband, strict: true}", "early_terminate", "other keys"),
        ("method: annealing", "method", "random, grid, bayes"),
        ("command: [bash, run.sh]", "command", "python PROGRAM"),
        ("parameters: {lr: {distribution: normal, mu: 0}}", "parameters.lr", "mu"),
        ("parameters: {lr: {distribution: beta}}", "parameters.lr", "beta"),
        ("parameters: {lr: {min: 1}}", "parameters.lr", "numbers"),
        ("parameters: {lr: 3}", "parameters.lr", "neither a range"),
        ("metric: {name: loss, target: 1}", "metric", "name and goal"),
        ("metrics: loss", "metrics", "no list"),
        ("constraints: [1]", "constraints", "list of texts"),
        ("constraints: [size]", "constraints", "bound of a metric"),
        ("trials: many", "trials", "no whole number"),
        ("[1, 2]", "file", "has no keys"),
        ("a: [", "file", "line"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(
    tmp_path: Path, text: str, field: str, words: str
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as error:
        read_sweep_file(path)
    assert error.value.field == field
    assert words in f"{error.value.message} {error.value.next_step}"


def test_ranges_as_text() -> None:
    lr = parse_space("lr", "loguniform(1e-4, 1e-1)")
    assert (lr.type, lr.low, lr.high, lr.log) == ("float", 1e-4, 1e-1, True)
    layers = parse_space("layers", "int(2,8,2)")
    assert layers.values() == [2, 4, 6, 8]
    assert parse_space("o", "choice(sgd, adam)").choices == ["sgd", "adam"]
    momentum = parse_space("m", "uniform(0,1) if optimizer=sgd|rmsprop")
    assert momentum.when == {"optimizer": ["sgd", "rmsprop"]}
    assert not is_range("3")
    assert not is_range("sin(3)")


@pytest.mark.parametrize(
    "text", ["uniform(1)", "uniform(a,b)", "choice()", "loguniform(0,1)", "int(0.5,2)", "3"]
)
def test_bad_ranges_name_the_parameter(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_space("lr", text)
    assert error.value.field == "parameters.lr"
    assert error.value.next_step is not None


def test_several_metrics_and_constraints(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("metrics: [accuracy:max, {name: latency}]\nconstraints: [size_mb <= 20]")
    file = read_sweep_file(path)
    assert [f"{each.name}:{each.goal}" for each in file.metrics] == ["accuracy:max", "latency:min"]
    (bound,) = file.constraints
    assert (bound.metric, bound.op, bound.bound, str(bound)) == (
        *("size_mb", "<=", 20.0),
        "size_mb <= 20",
    )
    assert parse_constraint("recall>=9e-1").violation(0.5) == pytest.approx(0.4)


@pytest.mark.parametrize("text", ["size", "size<=", "<=3", "size<=nan", "size<3"])
def test_a_constraint_needs_a_metric_and_a_bound(text: str) -> None:
    with pytest.raises(InvalidInput, match="no bound of a metric"):
        parse_constraint(text)


@pytest.mark.parametrize("text", ["accuracy", "accuracy:up", ":max"])
def test_a_metric_needs_a_goal(text: str) -> None:
    with pytest.raises(InvalidInput, match="has no goal"):
        parse_metric(text)
