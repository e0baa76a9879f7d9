"""Lets what was measured of predictions take part in rollouts, and hides what is to be hidden."""

from portal.endpoints.ports import register_hidings, register_judge
from portal.monitoring.judge import MonitoringJudge
from portal.monitoring.settings_of import HiddenColumns

register_judge(MonitoringJudge())
register_hidings(HiddenColumns())
