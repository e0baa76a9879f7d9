"""Django app configuration of the portal's apps."""

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import module_has_submodule


class App(AppConfig):
    """An app of the portal. Its `wiring.py`, if any, is imported once all models are loaded.

    There an app connects to the signals of lower apps (`core.events`) and registers its adapters
    for their ports. It is a module so that its imports are at the top of a file.
    """

    def ready(self) -> None:
        """Import the wiring of the app."""
        if self.module is not None and module_has_submodule(self.module, "wiring"):
            import_module(f"{self.name}.wiring")


class CoreConfig(App):
    default = True
    name = "portal.core"
    label = "core"
