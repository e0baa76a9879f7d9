from portal.core.apps import App


class WebConfig(App):
    default = True
    name = "portal.web"
    label = "web"
