from portal.core.apps import App


class StorageConfig(App):
    default = True
    name = "portal.storage"
    label = "storage"
