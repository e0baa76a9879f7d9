"""URLs of all pages."""

from portal.web.account.urls import urlpatterns as account
from portal.web.audit.urls import urlpatterns as audit
from portal.web.batch_predictions.urls import urlpatterns as batch_predictions
from portal.web.compute.urls import urlpatterns as compute
from portal.web.datasets.urls import urlpatterns as datasets
from portal.web.docs.urls import urlpatterns as docs
from portal.web.endpoints.urls import urlpatterns as endpoints
from portal.web.environments.urls import urlpatterns as environments
from portal.web.experiments.urls import urlpatterns as experiments
from portal.web.home.urls import urlpatterns as home
from portal.web.jobs.urls import urlpatterns as jobs
from portal.web.monitoring.urls import urlpatterns as monitoring
from portal.web.notebooks.urls import urlpatterns as notebooks
from portal.web.palette.urls import urlpatterns as palette
from portal.web.pipelines.urls import urlpatterns as pipelines
from portal.web.projects.urls import urlpatterns as projects
from portal.web.registry.urls import urlpatterns as registry
from portal.web.reports.urls import urlpatterns as reports
from portal.web.schedules.urls import urlpatterns as schedules
from portal.web.spend.urls import urlpatterns as spend
from portal.web.streams.urls import urlpatterns as streams
from portal.web.sweeps.urls import urlpatterns as sweeps
from portal.web.workloads.urls import urlpatterns as workloads

urlpatterns = [
    *home,
    *palette,
    *docs,
    *streams,
    *projects,
    *spend,
    *jobs,
    *sweeps,
    *pipelines,
    *schedules,
    *environments,
    *workloads,
    *experiments,
    *datasets,
    *registry,
    *batch_predictions,
    *reports,
    *endpoints,
    *monitoring,
    *audit,
    *account,
    *compute,
    *notebooks,
]
