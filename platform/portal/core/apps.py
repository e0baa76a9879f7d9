"""How a room of the portal is an app of Django."""

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import module_has_submodule


class App(AppConfig):
    """A room. Its `wiring.py`, if any, is imported once all models are loaded.

    There a room connects to news from below (`core.events`) and registers its answers to the ports
    of lower rooms. It is a module so that its imports stand at the top of a file.
    """

    def ready(self) -> None:
        """Import the wiring of the room."""
        if self.module is not None and module_has_submodule(self.module, "wiring"):
            import_module(f"{self.name}.wiring")


class CoreConfig(App):
    default = True
    name = "portal.core"
    label = "core"
