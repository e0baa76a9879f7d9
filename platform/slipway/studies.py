"""A storage for Optuna whose studies are in a project, for notebooks and any number of jobs.

>>> import optuna, slipway

>>> study = optuna.create_study(
...     storage=slipway.optuna_storage(), study_name="digits", load_if_exists=True
... )
"""

from importlib import import_module
from typing import TYPE_CHECKING

from slipway.client import Client
from slipway.errors import SlipwayError
from slipway.schemas.studies import DEFAULT_STORAGE

if TYPE_CHECKING:
    from optuna.storages import JournalStorage


def optuna_storage(
    name: str = DEFAULT_STORAGE, *, project: str | None = None, client: Client | None = None
) -> "JournalStorage":
    """Return a storage for Optuna studies: pass it to `optuna.create_study(storage=…)`.

    Processes that name the same storage of the same project share its studies, from any machine.
    The first study creates the storage. `project` and `client` default to those in use: in a job or
    a notebook server its own.
    """
    try:
        backend = import_module("slipway.study_log").StudyLog(name, project=project, client=client)
    except ImportError as error:
        if (error.name or "").split(".")[0] != "optuna":
            raise
        raise SlipwayError(
            "Optuna is not installed here, or is older than version 4.",
            code="optuna_missing",
            next_step='Install it: pip install "optuna>=4", or add it to requirements.txt.',
        ) from None
    storage: JournalStorage = import_module("optuna.storages").JournalStorage(backend)
    return storage
