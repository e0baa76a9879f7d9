from portal.core.apps import Room


class StorageConfig(Room):
    default = True
    name = "portal.storage"
    label = "storage"
