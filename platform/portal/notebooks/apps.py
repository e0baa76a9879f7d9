from portal.core.apps import Room


class NotebooksConfig(Room):
    default = True
    name = "portal.notebooks"
    label = "notebooks"
