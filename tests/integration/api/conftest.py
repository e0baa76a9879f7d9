"""The real portal that the API is driven at."""

from tests.portals import portal

__all__ = ["portal"]
