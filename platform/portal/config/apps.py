from portal.core.apps import App


class ConfigConfig(App):
    default = True
    name = "portal.config"
    label = "config"
