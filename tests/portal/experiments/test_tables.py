"""MLflow's tables: made by MLflow, read by us, one database for all projects."""

import math

import pytest

from portal.experiments.models import Experiment, LatestMetric, Metric, Run
from portal.experiments.models.runs import LARGEST

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(databases=["default", "tracking"])]


def make_run(workspace: str, run_id: str, name: str = "digits") -> Run:
    """Make an experiment and a run of a project."""
    experiment = Experiment.objects.create(
        name=name, workspace=workspace, lifecycle_stage="active", creation_time=1
    )
    return Run.objects.create(
        run_uuid=run_id,
        experiment=experiment,
        status="RUNNING",
        lifecycle_stage="active",
        source_type="LOCAL",
        start_time=1,
    )


def test_two_projects_use_the_same_name_and_see_only_their_own() -> None:
    ours, theirs = make_run("prj_a", "a" * 32), make_run("prj_b", "b" * 32)
    assert list(Run.objects.in_projects(["prj_a"]).active()) == [ours]
    assert list(Experiment.objects.in_projects(["prj_b"]).active()) == [theirs.experiment]


@pytest.mark.parametrize(
    ("value", "is_nan", "logged"),
    [(0.0, True, math.nan), (LARGEST, False, math.inf), (-LARGEST, False, -math.inf), (3, 0, 3.0)],
)
def test_a_metric_is_read_as_the_number_that_was_logged(
    value: float, is_nan: bool, logged: float
) -> None:
    run = make_run("prj_a", "a" * 32)
    for table in (Metric, LatestMetric):
        table.objects.create(run=run, key="loss", value=value, is_nan=is_nan, step=1, timestamp=1)
        number = table.objects.get(run=run).number
        assert number == logged or (math.isnan(number) and math.isnan(logged))
