"""Models of this app, one file for each noun."""

from portal.monitoring.models.alerts import Alert, AlertChannel, AlertDelivery
from portal.monitoring.models.hours import CapturedHour, DriftWindow, HourSummary
from portal.monitoring.models.labels import EmptyLabel, Label
from portal.monitoring.models.monitors import BaselineRecord, Monitor
from portal.monitoring.models.selections import Erasure, Selection

__all__ = [
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "BaselineRecord",
    "CapturedHour",
    "DriftWindow",
    "EmptyLabel",
    "Erasure",
    "HourSummary",
    "Label",
    "Monitor",
    "Selection",
]
