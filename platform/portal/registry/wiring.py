"""Provides datasets with the model versions created from the runs and jobs that read them."""

from collections.abc import Iterable, Sequence

from portal.accounts.notifications import register_notifications
from portal.datasets.ports import DerivedModel, register_models
from portal.experiments.models import Tag
from portal.experiments.services.job_runs import JOB_TAG
from portal.registry.catalog import versions_from_runs
from portal.registry.notifications import approval_notifications
from slipway.schemas.accounts import Scope


class _Registered:
    """Registered models by their source runs."""

    def derived_from(
        self, *, project_id: str, run_ids: Iterable[str], workload_ids: Iterable[str]
    ) -> Sequence[DerivedModel]:
        """Return the versions created from the runs, and from all runs of the jobs."""
        tags = Tag.objects.filter(key=JOB_TAG, run__experiment__workspace=project_id)
        of_jobs = tags.filter(value__in=list(workload_ids)).values_list("run_id", "value")
        jobs = {run_id: workload_id or "" for run_id, workload_id in of_jobs}
        return [
            DerivedModel(
                name=name,
                version=str(number),
                run_id=run_id,
                workload_id=jobs.get(run_id, ""),
            )
            for name, number, run_id in versions_from_runs(project_id, {*run_ids, *jobs})
        ]


register_models(_Registered())
register_notifications(Scope.EXPERIMENTS_READ, approval_notifications)
