"""A place to schedule in: that of jobs, and a browser."""

from tests.portal.training.conftest import _kind, _store, bob, machine
from tests.portal.web.conftest import browse

__all__ = ["_kind", "_store", "bob", "browse", "machine"]
