"""Django app configuration of the portal: its last app wires all of them."""

from importlib import import_module

from django.apps import AppConfig, apps
from django.utils.module_loading import module_has_submodule


class ConfigConfig(AppConfig):
    """The last of INSTALLED_APPS: once all models are loaded, it imports each `wiring.py`.

    There an app connects to the signals of lower apps (`core.events`) and registers its adapters
    for their ports. It is a module so that its imports are at the top of a file.
    """

    name = "portal.config"

    def ready(self) -> None:
        """Import the wiring of each app of the portal, in the order of INSTALLED_APPS."""
        for app in apps.get_app_configs():
            is_ours = app.name.startswith("portal.") and app.module is not None
            if is_ours and module_has_submodule(app.module, "wiring"):
                import_module(f"{app.name}.wiring")
