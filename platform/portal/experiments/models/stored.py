"""Size of each project's artifacts, stored in the portal's own database."""

from django.db import models

from portal.accounts.models import Project


class StoredArtifacts(models.Model):
    """The bytes of a project's artifacts, as they were found at `measured_at`.

    MLflow's own process writes them, and clients of S3 may too, so that they are counted where they
    rest.
    """

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    size_bytes = models.BigIntegerField()
    measured_at = models.DateTimeField()
