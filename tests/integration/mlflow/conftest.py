"""A portal with MLflow's server for all tests here, whose projects have no rules of other tests."""

from collections.abc import Iterator

import pytest

from tests.tracking import TrackingPortal, tracking_portal


@pytest.fixture(scope="session")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingPortal]:
    """A portal with MLflow's server beside it."""
    with tracking_portal(tmp_path_factory.mktemp("tracking")) as running:
        yield running
