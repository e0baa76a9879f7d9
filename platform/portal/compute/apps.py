from portal.core.apps import App


class ComputeConfig(App):
    default = True
    name = "portal.compute"
    label = "compute"
