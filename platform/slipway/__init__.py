"""Slipway: the SDK of the all-in-one machine-learning platform.

import slipway

with slipway.Client() as client:
    for project in client.projects.list():
        ...
"""

from slipway import errors
from slipway.client import Client
from slipway.errors import SlipwayError
from slipway.pages import Pages
from slipway.retries import Retries
from slipway.version import __version__

__all__ = ["Client", "Pages", "Retries", "SlipwayError", "__version__", "errors"]
