"""Notebooks as steps of pipelines: the step in Python and YAML, and the job that runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from slipway.pipeline_files import read_pipeline
from slipway.pipeline_graphs import draw
from slipway.schemas.pipeline_checks import outputs_of

FLOW = """
import slipway
from slipway import pipelines


@slipway.step
def prepare(rows: int) -> int: ...


@slipway.pipeline
def digits(rows: int = 10):
    report = pipelines.notebook(
        "reports/report.ipynb", inputs={"rows": prepare(rows)}, outputs={"accuracy": "number"}
    )
    pipelines.script(
        "send.py", inputs={"file": report.notebook, "run": report.run}, when=report.accuracy > 0.5
    )
"""
YAML = """
steps:
  report: {kind: notebook, script: report.ipynb, inputs: {rows: 3}}
  send: {script: send.py, inputs: {file: "${steps.report.outputs.notebook}"}}
"""
CELL = """
import pathlib, slipway
pathlib.Path("model.txt").write_text("x" * rows)
slipway.step_output("model", pathlib.Path("model.txt"))
slipway.step_output("rows", rows)
"""


def test_a_notebook_in_python_is_a_step_with_its_results_as_outputs(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    pipeline = read_pipeline(str(tmp_path / "flow.py"), folder=tmp_path)
    report = pipeline.step("report")
    assert (report.kind, report.script) == ("notebook", "reports/report.ipynb")
    assert report.inputs == {"rows": "${steps.prepare.outputs.result}"}
    assert list(outputs_of(report)) == ["notebook", "run", "accuracy"]
    assert pipeline.step("send").inputs == {
        "file": "${steps.report.outputs.notebook}",
        "run": "${steps.report.outputs.run}",
    }
    assert "report   notebook reports/report.ipynb; after prepare (result)" in draw(pipeline)


def test_a_notebook_in_yaml_is_the_same_contract(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(YAML)
    report = read_pipeline(str(tmp_path / "digits.yaml")).step("report")
    assert report.executed_path == "step-outputs/report.ipynb"


@pytest.mark.thorough
def test_cells_read_inputs_report_outputs_and_the_results_are_a_file(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cells = [nbformat.v4.new_code_cell(text) for text in ("rows = 1", CELL)]  # type: ignore[no-untyped-call]
    cells[0].metadata["tags"] = ["parameters"]
    notebook.cells = cells
    (tmp_path / "reports").mkdir()
    nbformat.write(notebook, tmp_path / "reports" / "report.ipynb")  # type: ignore[no-untyped-call]
    job = ("slipway.notebook_job", "reports/report.ipynb", "--keep=step-outputs/report.ipynb")
    ended = subprocess.run(
        [sys.executable, "-m", *job],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "platform"),
            "SLIPWAY_WORKLOAD": "wl_x",
            "SLIPWAY_PARAMS": json.dumps({"rows": "3"}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # The path is that below the folder of the job, where the node keeps files.
    assert '[slipway] outputs: {"model": "reports/model.txt"}' in ended.stdout
    assert '[slipway] outputs: {"rows": 3}' in ended.stdout
    executed = nbformat.read(tmp_path / "step-outputs" / "report.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert "".join(output.text for output in executed.cells[-1].outputs).count("[slipway]") == 2
