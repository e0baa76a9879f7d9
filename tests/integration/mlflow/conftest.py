"""One portal with MLflow's server for all tests here."""

from tests.tracking import tracking

__all__ = ["tracking"]
