from portal.core.apps import App


class NotebooksConfig(App):
    default = True
    name = "portal.notebooks"
    label = "notebooks"
