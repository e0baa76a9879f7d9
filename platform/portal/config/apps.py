from portal.core.apps import Room


class ConfigConfig(Room):
    default = True
    name = "portal.config"
    label = "config"
