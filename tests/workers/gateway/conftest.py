"""One data plane for the tests of a module that leave it as it was."""

from collections.abc import Iterator

import pytest

from tests.workers.serving import Plane, plane


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway that serves the endpoint `digits` from one replica of the linear model."""
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane
