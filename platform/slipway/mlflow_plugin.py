"""Plug-in of MLflow that records samples of inputs outside of Slipway's jobs and notebooks."""

import os
from importlib import import_module

from slipway.credentials import read_logins
from slipway.errors import SlipwayError
from slipway.mlflow_inputs import watch_inputs


class Inputs:
    """Plug-in that MLflow loads where this SDK is installed. It adds no header."""

    def __init__(self) -> None:
        self._address = ""

    def in_context(self) -> bool:
        """Start watching once MLflow uses a Slipway server. Always returns False."""
        address = import_module("mlflow").get_tracking_uri()
        if address != self._address:  # called for every request
            self._address = address
            ours = [f"{portal.rstrip('/')}/mlflow" for portal in _portals() if portal]
            if address.startswith(tuple(ours)):
                watch_inputs(*ours)
        return False

    def request_headers(self) -> dict[str, str]:
        """Return nothing."""
        return {}


def _portals() -> list[str]:
    try:
        return [os.environ.get("SLIPWAY_URL", ""), *read_logins().servers]
    except SlipwayError:
        return []
