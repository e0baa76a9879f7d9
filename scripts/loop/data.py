"""Demo steps: create the project, and push a dataset version."""

import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.loop.processes import ROOT
from scripts.loop.steps import DemoError, show
from scripts.loop.users import TEAM
from slipway import Client
from slipway.errors import NotFound
from slipway.schemas.datasets import DatasetVersionOut

PROJECT: Final = "demo"
DATASET: Final = "digits"
EXAMPLE: Final = ROOT / "examples" / "digits"


def create_project(client: Client) -> None:
    """Create the project in the team of the demo, unless it exists."""
    try:
        client.projects.get(PROJECT)
    except NotFound:
        description = "Handwritten digits, created by make demo."
        project = client.projects.create("Demo", slug=PROJECT, description=description, team=TEAM)
        if project.slug != PROJECT:  # the slug is taken by a project that Ada may not see
            client.projects.archive(project.slug)
            raise DemoError(f"another user owns a project with the slug {PROJECT}") from None
    show("project", f"{client.url}/p/{PROJECT}")


class Digits:
    """The 1,797 handwritten digits of scikit-learn, in a file for as long as the demo lasts."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "digits.csv"
        subprocess.run([sys.executable, EXAMPLE / "make_csv.py", self.file], check=True)
        with self.file.open(newline="", encoding="utf-8") as lines:
            self.rows = [[float(cell) for cell in row] for row in list(csv.reader(lines))[1:]]


def push(client: Client, digits: Digits) -> DatasetVersionOut:
    """Push the digits as a dataset version. Pushing them again creates no new version."""
    note = "From scikit-learn."
    version = client.datasets.push(DATASET, digits.file, project=PROJECT, note=note)
    show("dataset", client.datasets.page(DATASET, project=PROJECT, version=version.number))
    (table,) = client.datasets.tables(DATASET, version.number or 0, project=PROJECT)
    show("table", f"{table.statistics.rows} rows, {len(table.statistics.columns)} columns")
    return version


def image_of(row: Sequence[float]) -> list[float]:
    """Return the input of the model: 64 pixels from 0 to 1."""
    return [pixel / 16 for pixel in row[:-1]]


def rotated(row: Sequence[float]) -> list[float]:
    """Return the same image, rotated by 90 degrees."""
    return [row[8 * down + 7 - across] / 16 for across in range(8) for down in range(8)]
