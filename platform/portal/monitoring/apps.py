from portal.core.apps import App


class MonitoringConfig(App):
    default = True
    name = "portal.monitoring"
    label = "monitoring"
