"""The world of the matrix."""

from tests.matrix.fixtures import _module_cast, cast, people

__all__ = ["_module_cast", "cast", "people"]
