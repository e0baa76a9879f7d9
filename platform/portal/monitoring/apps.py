from portal.core.apps import Room


class MonitoringConfig(Room):
    default = True
    name = "portal.monitoring"
    label = "monitoring"
