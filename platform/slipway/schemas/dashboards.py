"""Wire schemas of dashboards of clusters in running work.

Under `/api/v1/projects/{project}`:

POST   jobs/{job}/dashboards                       DashboardOut (201); audited
POST   notebooks/servers/{server}/dashboards       DashboardOut (201); audited
"""

from datetime import datetime

from slipway.schemas.base import AnswerSchema


class DashboardOut(AnswerSchema):
    """A dashboard of the cluster of a workload that may be opened.

    `dashboard_url` opens it once, in one browser, until `expires_at`. The browser then may use it
    for as long as the person may, for 12 hours at most.
    """

    id: str
    workload: str
    attempt: int
    dashboard_url: str
    expires_at: datetime
