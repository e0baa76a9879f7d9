from slipway import errors, job
from slipway.client import Client
from slipway.errors import SlipwayError
from slipway.pages import Pages
from slipway.retries import Retries
from slipway.training import train
from slipway.version import __version__

__all__ = [
    "Client",
    "Pages",
    "Retries",
    "SlipwayError",
    "__version__",
    "errors",
    "job",
    "train",
]
