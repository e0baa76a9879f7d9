"""One portal with MLflow's server for all tests here."""

import pytest

from tests.portals import RunningPortal
from tests.tracking import TrackingPortal


@pytest.fixture(scope="session")
def tracking(plain_portal: RunningPortal) -> TrackingPortal:
    """A portal with MLflow's server beside it."""
    return TrackingPortal(plain_portal)
