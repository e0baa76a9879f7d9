from portal.core.apps import App


class DatasetsConfig(App):
    default = True
    name = "portal.datasets"
    label = "datasets"
