"""The templates of a new workspace run as they are, from the first cell to the last."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.notebooks import Person, running_notebooks
from tests.portals import RunningPortal

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TEMPLATES = sorted((ROOT / "workers" / "lab" / "templates").glob("*.ipynb"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """All of Slipway with notebooks, and with what templates use: MLflow's server and a gateway."""
    folder = tmp_path_factory.mktemp("templates")
    used = {"SLIPWAY_EMBEDDED_TRACKING": "true", "SLIPWAY_EMBEDDED_GATEWAY": "true"}
    with running_notebooks(folder, node=None, **used) as portal:
        yield portal


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.stem)
def test_a_template_runs_from_the_first_cell_to_the_last(bob: Person, template: Path) -> None:
    server = bob.ready("templates")
    desk = bob.open(server)
    kernel = desk.kernel()
    cells = json.loads(template.read_bytes())["cells"]
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        output = desk.run(kernel, source, within_s=300)
        assert "Traceback" not in output, f"{source}\n{output}"
    bob.stop(server)
