"""The policies of datasets: the project's policy, and the dataset and version the path names."""

from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.http import HttpRequest

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.errors import NotFound
from portal.datasets.models import Dataset, Version
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.datasets import VersionState

LATEST = "latest"
_LONGEST_NUMBER = 9


@dataclass(frozen=True)
class DatasetRole:
    """Members of the project in the path, with at least `role`, for a dataset of that project.

    `deleted` finds one that was deleted too, unless another has its name by now.
    """

    role: Role
    scope: Scope
    deleted: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the dataset on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        datasets = Dataset.objects.of_project(gated_project(request)).filter(name=path["dataset"])
        datasets = datasets if self.deleted else datasets.current()
        dataset = datasets.order_by(F("deleted_at").desc(nulls_first=True)).first()
        if dataset is None:
            raise NotFound
        request.gated_dataset = dataset  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


@dataclass(frozen=True)
class VersionRole:
    """As DatasetRole, for a version of the dataset: a number, `latest`, or the id of a draft.

    `deleted` finds one that was deleted too.
    """

    role: Role
    scope: Scope
    deleted: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the version on the request."""
        DatasetRole(self.role, self.scope).check(request, path)
        version = version_of(gated_dataset(request), path["version"], deleted=self.deleted)
        if version is None:
            raise NotFound
        request.gated_version = version  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


def version_of(dataset: Dataset, name: str, *, deleted: bool = False) -> Version | None:
    """Return a version of a dataset by its number, `latest`, or the id of one that is no version.

    Deleted ones are found by `deleted` alone, purged ones never.
    """
    hidden = [VersionState.PURGED] if deleted else [VersionState.PURGED, VersionState.DELETED]
    versions = Version.objects.complete().filter(dataset=dataset).exclude(state__in=hidden)
    if name == LATEST:
        return versions.filter(state=VersionState.READY).order_by("-number").first()
    if name.isascii() and name.isdigit() and len(name) <= _LONGEST_NUMBER:
        return versions.filter(number=int(name)).first()
    return versions.filter(pk=name).first()


def gated_dataset(request: HttpRequest) -> Dataset:
    """Return the dataset the gate let this request reach."""
    dataset: Dataset = request.gated_dataset  # type: ignore[attr-defined]
    return dataset


def gated_version(request: HttpRequest) -> Version:
    """Return the version the gate let this request reach."""
    version: Version = request.gated_version  # type: ignore[attr-defined]
    return version
