"""Flows of Kubeflow and Metaflow that moved to Slipway: few new lines, and the same results."""

import difflib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.processes import ROOT

FLOWS = ROOT / "examples" / "flows"
_MOST = 20
# As the flows print them in Kubeflow Pipelines 2.17 and Metaflow 2.19.
_GOOD = "good enough: 0.978"


def _lines(path: Path) -> list[str]:
    """Return the lines of a script, without indentation, blank lines and the line of its title."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith('"""')]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"flow_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("tool", ["kubeflow", "metaflow"])
def test_at_most_twenty_lines_are_new(tool: str) -> None:
    before = _lines(FLOWS / tool / f"{tool}_flow.py")
    after = _lines(FLOWS / tool / "flow.py")
    new = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    assert 0 < len(new) <= _MOST
    table = (FLOWS / "README.md").read_text(encoding="utf-8")
    assert f"[flow.py]({tool}/flow.py) | {len(new)} |" in table


def test_the_flow_of_kubeflow_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = _module(FLOWS / "kubeflow" / "flow.py")
    fitted = flow.fit_forest(flow.load_wines(), 50)
    assert flow.report(fitted.accuracy) == _GOOD


def test_the_flow_of_metaflow_computes_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    _module(FLOWS / "metaflow" / "flow.py").wine()
    assert capsys.readouterr().out == "depth 4: accuracy 0.933\n"
