from portal.core.apps import App


class ApiConfig(App):
    default = True
    name = "portal.api"
    label = "api"
