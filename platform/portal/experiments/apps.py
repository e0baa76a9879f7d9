from portal.core.apps import Room


class ExperimentsConfig(Room):
    default = True
    name = "portal.experiments"
    label = "experiments"
