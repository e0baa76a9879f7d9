from slipway import errors, job, track
from slipway.client import Client
from slipway.datasets import dataset
from slipway.endpoint import Endpoint
from slipway.errors import SlipwayError
from slipway.pages import Pages
from slipway.registration import Model, register
from slipway.retries import Retries
from slipway.training import train
from slipway.version import __version__

__all__ = [
    "Client",
    "Endpoint",
    "Model",
    "Pages",
    "Retries",
    "SlipwayError",
    "__version__",
    "dataset",
    "errors",
    "job",
    "register",
    "track",
    "train",
]
