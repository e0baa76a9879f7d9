"""The real portal for what happens at the same moment."""

from tests.portals import portal

__all__ = ["portal"]
