from portal.core.apps import App


class WorkloadsConfig(App):
    default = True
    name = "portal.workloads"
    label = "workloads"
