"""A place to search in: that of jobs."""

from tests.portal.training.conftest import _kind, _store, bob, machine

__all__ = ["_kind", "_store", "bob", "machine"]
