from portal.core.apps import Room


class EndpointsConfig(Room):
    default = True
    name = "portal.endpoints"
    label = "endpoints"
