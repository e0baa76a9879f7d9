"""The policies of datasets: the project's policy, and the dataset and version the path names."""

from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.datasets.models import Dataset, Version
from slipway.schemas.datasets import VersionState

LATEST = "latest"
_LONGEST_NUMBER = 9


@dataclass(frozen=True)
class DatasetRole(ProjectObject[Dataset]):
    """Members of the project with at least `role`, for a dataset of that project.

    `deleted` finds a deleted dataset too, unless another has its name by now.
    """

    deleted: bool = False

    def find(self, project: Project, path: dict[str, Any]) -> Dataset | None:
        """Return the dataset by its name."""
        datasets = Dataset.objects.of_project(project).filter(name=path["dataset"])
        datasets = datasets if self.deleted else datasets.current()
        return datasets.order_by(F("deleted_at").desc(nulls_first=True)).first()


@dataclass(frozen=True)
class VersionRole(ProjectObject[Version]):
    """As DatasetRole, for a version of the dataset: a number, `latest`, or the id of a draft.

    `deleted` finds a deleted version too.
    """

    deleted: bool = False

    def find(self, project: Project, path: dict[str, Any]) -> Version | None:
        """Return the version of the dataset in the path."""
        dataset = DatasetRole(self.role, self.scope).find(project, path)
        if dataset is None:
            return None
        return version_of(dataset, path["version"], deleted=self.deleted)


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
    return DatasetRole.stored(request)


def gated_version(request: HttpRequest) -> Version:
    """Return the version the gate let this request reach."""
    return VersionRole.stored(request)
