"""Extension points for other apps: the models that were trained on a version."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class DerivedModel:
    """A model version, and the run or workload it came of."""

    name: str
    version: str
    run_id: str = ""
    workload_id: str = ""


class Models(Protocol):
    """Knows which model versions came of runs and workloads."""

    def derived_from(
        self, *, project_id: str, run_ids: Iterable[str], workload_ids: Iterable[str]
    ) -> Sequence[DerivedModel]:
        """Return the model versions of the project that came of any of them."""


class NoModels:
    """The default while no other app provides models."""

    def derived_from(
        self, *, project_id: str, run_ids: Iterable[str], workload_ids: Iterable[str]
    ) -> Sequence[DerivedModel]:
        """Return none."""
        return ()


class _Registry:
    def __init__(self) -> None:
        self.models: Models = NoModels()


_registry = _Registry()


def register_models(models: Models) -> None:
    """Register the implementation. Called once, from an app's wiring."""
    _registry.models = models


def models() -> Models:
    """Return who knows of models."""
    return _registry.models
