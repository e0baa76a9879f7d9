from portal.core.apps import Room


class WorkloadsConfig(Room):
    default = True
    name = "portal.workloads"
    label = "workloads"
