from portal.core.apps import App


class SpendConfig(App):
    default = True
    name = "portal.spend"
    label = "spend"
