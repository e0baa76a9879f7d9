"""Tasks of the app, and when they are enqueued."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.sweeps.services import early_stops, importances, progress, replays, storage_deletion

PERIODIC = {
    "sweeps.advance_all": timedelta(seconds=5),
    "sweeps.stop_early": timedelta(seconds=1),
    "sweeps.replay_studies": timedelta(seconds=2),
    "sweeps.update_importances": timedelta(seconds=10),
    "sweeps.purge_storages": timedelta(seconds=10),
}


@background_task("sweeps.advance")
def advance(sweep_id: str) -> None:
    """Record the ended trials of one sweep and start the next ones."""
    progress.advance_sweep(sweep_id)


@background_task("sweeps.advance_all")
def advance_all() -> None:
    """Advance every sweep, in case a message was lost."""
    progress.advance_all()


@background_task("sweeps.stop_early")
def stop_early() -> None:
    """Stop running trials whose metric is worse than that of others."""
    early_stops.stop_early_everywhere()


@background_task("sweeps.update_importances")
def update_importances() -> None:
    """Estimate the importance of parameters again where many trials have ended."""
    importances.update_importances()


@background_task("sweeps.replay_studies")
def replay_studies() -> None:
    """Update the rows of Optuna studies from new entries of their storages."""
    replays.replay_all()


@background_task("sweeps.purge_storages")
def purge_storages() -> None:
    """Delete rows of Optuna storages that people have deleted."""
    storage_deletion.purge_deleted()
