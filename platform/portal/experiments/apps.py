from portal.core.apps import App


class ExperimentsConfig(App):
    default = True
    name = "portal.experiments"
    label = "experiments"
