from portal.core.apps import Room


class SpendConfig(Room):
    default = True
    name = "portal.spend"
    label = "spend"
