"""Registers monitoring with endpoints and lineage: rollout judge, hidden columns, graph nodes."""

from portal.accounts.notifications import register_notifications
from portal.endpoints.lineage import version_behind
from portal.endpoints.ports import register_hidings, register_judge
from portal.monitoring.judge import MonitoringJudge
from portal.monitoring.lineage import data_of
from portal.monitoring.monitor_settings import HiddenColumns
from portal.monitoring.notifications import alert_notifications
from portal.registry.ports import register_downstream, register_upstream
from slipway.schemas.accounts import Scope
from slipway.schemas.registry import NodeKind

register_judge(MonitoringJudge())
register_hidings(HiddenColumns())
register_downstream(data_of)
register_upstream(NodeKind.PREDICTIONS, version_behind)
register_notifications(Scope.WORKLOADS_READ, alert_notifications)
