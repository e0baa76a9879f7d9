from portal.core.apps import App


class EndpointsConfig(App):
    default = True
    name = "portal.endpoints"
    label = "endpoints"
