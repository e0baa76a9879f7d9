"""Fixtures of the tests of SDK and command line."""

from tests.live import portal

__all__ = ["portal"]
