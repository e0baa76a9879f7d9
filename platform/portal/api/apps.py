from portal.core.apps import Room


class ApiConfig(Room):
    default = True
    name = "portal.api"
    label = "api"
