"""The world of the matrix as fixtures: made once a module, and as new for every test.

Import all of them into the conftest of a folder that wants them; `people` are then the people of
that world, so that nobody is made twice.
"""

from collections.abc import Iterator

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tests.matrix.actors import Cast
from tests.matrix.world import make_world
from tests.personas import Personas


@pytest.fixture(scope="module")
def _module_cast(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Cast]:
    with (
        django_db_blocker.unblock(),
        transaction.atomic(),
        transaction.atomic(using="tracking"),
    ):
        yield Cast(make_world())
        transaction.set_rollback(True)
        transaction.set_rollback(True, using="tracking")


@pytest.fixture
def cast(_module_cast: Cast, db: None) -> Cast:
    """Everybody of the matrix; what a test changes is undone after it."""
    return _module_cast


@pytest.fixture
def people(cast: Cast) -> Personas:
    """Alice owns the project vision, Bob contributes, Vera views, Charlie is a stranger."""
    return cast.world.people
