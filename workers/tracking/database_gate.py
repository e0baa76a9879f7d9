"""Opens MLflow's database on the first request, which gets a 503 while it is unavailable."""

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.db import utils
from mlflow.tracking._model_registry.registry import ModelRegistryStoreRegistry
from mlflow.tracking._tracking_service.registry import TrackingStoreRegistry
from sqlalchemy.exc import SQLAlchemyError

# A client gets its 503 within two seconds, even behind others that try to open the database.
_TURN_S: Final = 1.3
_opening = threading.RLock()
_MESSAGE: Final = "The database cannot be opened; try again in a moment."


class _Failure:
    """The moment of the last attempt that failed: requests that waited for it fail with it."""

    at = float("-inf")


def _serialized(open_store: Callable[..., Any]) -> Callable[..., Any]:
    """Return a store as before, and raise an error of status 503 where the database is away."""

    @wraps(open_store)
    def open_once(*arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        if not _opening.acquire(timeout=_TURN_S):
            raise MlflowException(_MESSAGE, error_code=TEMPORARILY_UNAVAILABLE)
        try:
            if began < _Failure.at:
                raise MlflowException(_MESSAGE, error_code=TEMPORARILY_UNAVAILABLE)
            return open_store(*arguments, **options)
        except SQLAlchemyError as error:
            _Failure.at = time.monotonic()
            raise MlflowException(_MESSAGE, error_code=TEMPORARILY_UNAVAILABLE) from error
        finally:
            _opening.release()

    return open_once


def limit_attempts() -> None:
    """Limit each request to one attempt to open the database.

    MLflow's default is ten attempts over 100 seconds.
    """
    utils.MAX_RETRY_COUNT = 1
    for registry in (TrackingStoreRegistry, ModelRegistryStoreRegistry):
        registry.get_store = _serialized(registry.get_store)  # type: ignore[method-assign]
