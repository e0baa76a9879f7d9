"""The workspaces of MLflow are the projects of the portal, which alone knows them."""

from collections.abc import Iterable
from typing import NoReturn

from mlflow.entities import Workspace
from mlflow.store.workspace.abstract_store import AbstractStore, WorkspaceNameValidator
from mlflow.tracking._workspace import registry

SCHEME = "slipway"


class Projects(AbstractStore):
    """Takes every workspace the portal names, and lists, makes, changes and removes none."""

    def __init__(self, workspace_uri: str | None = None) -> None:
        """Accept the registry's argument. There is nothing to connect to."""

    def list_workspaces(self) -> Iterable[Workspace]:
        """Return nothing: the portal decides who may see which project."""
        return []

    def get_workspace(self, workspace_name: str) -> Workspace:
        """Return the project with this id. The portal has checked that it exists."""
        return Workspace(name=workspace_name)

    def get_default_workspace(self) -> NoReturn:
        """Raise NotImplementedError: MLflow then requires each request to name its workspace."""
        raise NotImplementedError


def register() -> None:
    """Register this class as MLflow's workspace store and allow project ids as names."""
    # Our ids contain an underscore (prj_…), which MLflow's rule, made for Kubernetes, forbids.
    WorkspaceNameValidator._PATTERN = r"^[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"  # noqa: SLF001
    store_registry = registry._get_workspace_store_registry()  # noqa: SLF001
    store_registry.register(SCHEME, Projects)  # type: ignore[no-untyped-call]
