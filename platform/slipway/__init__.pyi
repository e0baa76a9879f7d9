from typing import Any

from slipway import errors, job, pipelines, track
from slipway.client import Client
from slipway.datasets import dataset
from slipway.endpoint import Endpoint
from slipway.errors import SlipwayError
from slipway.pages import Pages
from slipway.pipeline_runs import run_pipeline
from slipway.pipelines import pipeline, step
from slipway.registration import Model, register
from slipway.retries import Retries
from slipway.step_io import step_input, step_output
from slipway.studies import optuna_storage
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
    "optuna_storage",
    "pipeline",
    "pipelines",
    "register",
    "run_pipeline",
    "step",
    "step_input",
    "step_output",
    "track",
    "train",
]

def load_ipython_extension(shell: Any) -> None: ...
