from portal.core.apps import Room


class RegistryConfig(Room):
    default = True
    name = "portal.registry"
    label = "registry"
