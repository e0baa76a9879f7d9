"""Batch predictions as steps of pipelines, in Python and YAML."""

from pathlib import Path

from slipway.pipeline_files import read_pipeline
from slipway.pipeline_graphs import draw
from slipway.schemas.pipeline_checks import outputs_of

FLOW = """
import slipway
from slipway import pipelines


@slipway.pipeline
def scoring(day: str = "latest"):
    registered = pipelines.register("digits", "runs:/x/model")
    scored = pipelines.predict(
        registered.uri, f"sales:{day}", "scored", keep_columns=["id"], tier="small"
    )
    pipelines.script("report.py", inputs={"data": scored.data, "rows": scored.rows})
"""
YAML = """
name: scoring
steps:
  score:
    kind: predict
    model: digits@production
    data: sales:latest
    output: scored
    on_error: skip
  report:
    script: report.py
    inputs: {data: "${steps.score.outputs.data}"}
"""


def test_a_prediction_in_python_is_a_step_with_its_version_as_an_output(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    pipeline = read_pipeline(str(tmp_path / "flow.py"), folder=tmp_path)
    score = pipeline.step("predict")
    assert (score.kind, score.model) == ("predict", "${steps.register.outputs.uri}")
    assert (score.data, score.output) == ("sales:${parameters.day}", "scored")
    assert score.keep_columns == ["id"]
    assert list(outputs_of(score)) == ["data", "rows", "failed_rows"]
    assert pipeline.step("report").inputs == {
        "data": "${steps.predict.outputs.data}",
        "rows": "${steps.predict.outputs.rows}",
    }
    assert "predict sales:${parameters.day} with ${steps.register.outputs.uri}" in draw(pipeline)


def test_a_prediction_in_yaml_is_the_same_contract(tmp_path: Path) -> None:
    (tmp_path / "scoring.yaml").write_text(YAML)
    score = read_pipeline(str(tmp_path / "scoring.yaml")).step("score")
    assert (score.on_error, score.has_cost, score.runs_code) == ("skip", True, False)
