"""Bytes of artifacts in each project, for storage costs."""

from collections.abc import Mapping

from portal.core import clock
from portal.experiments.factories import artifact_store
from portal.experiments.models import StoredArtifacts


def measure(*, project_id: str) -> int:
    """Count the bytes of a project's artifacts in the artifact store, and save the number.

    Raises Unavailable, and remembers what it did before, when the store is out of order.
    """
    size_bytes = artifact_store().folder_size(f"workspaces/{project_id}")
    StoredArtifacts.objects.update_or_create(
        project_id=project_id,
        defaults={"size_bytes": size_bytes, "measured_at": clock.now()},
    )
    return size_bytes


def measured() -> Mapping[str, int]:
    """Return the bytes of each project as they were measured last."""
    return dict(StoredArtifacts.objects.values_list("project", "size_bytes"))
