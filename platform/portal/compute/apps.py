from portal.core.apps import Room


class ComputeConfig(Room):
    default = True
    name = "portal.compute"
    label = "compute"
