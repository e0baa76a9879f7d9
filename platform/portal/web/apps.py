from portal.core.apps import Room


class WebConfig(Room):
    default = True
    name = "portal.web"
    label = "web"
