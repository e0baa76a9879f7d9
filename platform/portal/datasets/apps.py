from portal.core.apps import Room


class DatasetsConfig(Room):
    default = True
    name = "portal.datasets"
    label = "datasets"
