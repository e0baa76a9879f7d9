from portal.core.apps import App


class RegistryConfig(App):
    default = True
    name = "portal.registry"
    label = "registry"
