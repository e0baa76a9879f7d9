"""Requests for exports of predictions to datasets, and for erasures."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import InvalidInput
from portal.datasets.models import Dataset
from portal.datasets.services.datasets import create_dataset
from portal.endpoints.models import Endpoint
from portal.monitoring.models import Erasure, Selection
from portal.monitoring.prediction_search import condition
from portal.monitoring.tasks import run_exports_and_erasures
from slipway.schemas.monitoring import ErasureIn, SelectionIn


def select_predictions(*, endpoint: Endpoint, by: User, spec: SelectionIn) -> Selection:
    """Request an export of labelled predictions as the next version of a dataset of the project."""
    condition(endpoint, spec.filters)  # raises for an unknown feature
    with transaction.atomic():
        dataset = (
            Dataset.objects.current().filter(project=endpoint.project, name=spec.dataset).first()
        )
        if dataset is None:
            dataset = _new_dataset(endpoint, by, spec.dataset)
        made = Selection.objects.create(
            endpoint=endpoint,
            dataset=dataset,
            filters=spec.filters.model_dump(mode="json", exclude_none=True),
            only_labelled=spec.only_labelled,
            by=by,
        )
        audit.record(
            "selection.create",
            kind="selection",
            target=made,
            label=f"{endpoint.name} to {dataset.name}",
            project=endpoint.project,
            after=made.filters,
        )
        enqueue_on_commit(run_exports_and_erasures)
    return made


def _new_dataset(endpoint: Endpoint, by: User, name: str) -> Dataset:
    try:
        return create_dataset(
            project=endpoint.project,
            by=by,
            name=name,
            description=f"Predictions of the endpoint {endpoint.name} with their labels.",
        )
    except InvalidInput as error:
        raise InvalidInput(
            error.message, code=error.code, field="dataset", next_step=error.next_step
        ) from error


def erase_predictions(*, endpoint: Endpoint, by: User, spec: ErasureIn) -> Erasure:
    """Request the erasure of the predictions of a key from all stored data, with their labels."""
    with transaction.atomic():
        made = Erasure.objects.create(
            endpoint=endpoint,
            is_own=spec.own_id is not None,
            reference=spec.own_id or spec.prediction_id or "",
            by=by,
        )
        audit.record(
            "prediction.erase_ask",
            kind="erasure",
            target=made,
            label=endpoint.name,
            project=endpoint.project,
        )
        enqueue_on_commit(run_exports_and_erasures)
    return made
