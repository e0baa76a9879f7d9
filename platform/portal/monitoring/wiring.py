"""Lets what was measured of predictions take part in rollouts."""

from portal.endpoints.ports import register_judge
from portal.monitoring.judge import MonitoringJudge

register_judge(MonitoringJudge())
