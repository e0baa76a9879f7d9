"""One data plane for the tests of a module that leave it as it was."""

from collections.abc import Iterator

import pytest

from tests.workers.serving import Plane, plane


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway that serves the endpoint `digits` from one replica of the linear model."""
    with plane() as found:
        replica = found.replica()
        found.start_gateway()
        found.serve(replica)
        yield found
