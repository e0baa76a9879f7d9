"""Starts a Python kernel that imports from the folder it works in what its person names there.

A script, run by the interpreter of a person's packages. `python -m ipykernel_launcher` looks for
modules in the folder of the notebook first, and that one is shared: a colleague's `pathlib.py` or
`ipykernel_launcher.py` would run as soon as a notebook is opened, a `stack_data.py` with the first
exception, a `jedi.py` with Tab, and a `numexpr.py` with pandas, which tries whether there is one.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder of this script, whose modules are not for kernels

import importlib.machinery
import importlib.util
import inspect
import os
import pdb  # noqa: T100 - patched below
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import DistributionFinder, MetadataPathFinder, PathDistribution
from pathlib import Path
from typing import Any, Self

from ipykernel.kernelapp import IPKernelApp
from IPython.core import interactiveshell
from slipway_import_order import FolderLastFinder, importer

_HERE = ""
_EXTENSIONS = "IPython.core.extensions"
# Installed modules that import modules named by a user, or by a file that a user loads.
_NAMED_BY_PEOPLE = frozenset(
    {"runpy", "pickle", "unittest.loader", "cloudpickle.cloudpickle", "torch.serialization"}
    | {_EXTENSIONS, "IPython.extensions.autoreload", "IPython.utils.module_paths"}
)


class InstalledFirstFinder(FolderLastFinder):
    """Finds modules in the current folder last, and only for code that is not installed.

    Packages try whether others are there. Those that are not could be planted in the folder, so
    being last is not enough.
    """

    folder = frozenset({_HERE})
    scripts: tuple[str, ...] = ()

    @classmethod
    def folders(cls) -> list[str]:
        """Return the folders of scripts that run, and the current one."""
        folders = list(reversed(cls.scripts))
        if _HERE in sys.path:
            with suppress(FileNotFoundError):
                folders.append(os.getcwd())  # noqa: PTH109 - as Python itself does
        return folders

    @classmethod
    def allows(cls, fullname: str) -> bool:
        """Return whether the import is in a cell or in a file of a person's."""
        frame, _ = importer()
        if frame is None:
            return False
        name = frame.f_globals.get("__name__")
        if name == _EXTENSIONS:  # `%load_ext autoreload` refers to IPython's own
            return importlib.util.find_spec(f"IPython.extensions.{fullname}") is None
        return name in _NAMED_BY_PEOPLE or not cls.is_installed(frame)

    @classmethod
    def find_distributions(
        cls, context: DistributionFinder.Context | None = None
    ) -> Iterable[PathDistribution]:
        """Find the metadata of installed packages, which plug-ins are loaded by."""
        given = {} if context is None else dict(vars(context))
        given.setdefault("path", cls.without_folder(sys.path))
        return MetadataPathFinder.find_distributions(DistributionFinder.Context(**given))


class ScriptFolder:
    """Has `%run` find what lies beside the script, without preferring it to what is installed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        InstalledFirstFinder.scripts += (self._folder,)
        return self

    def __exit__(self, *_: object) -> None:
        InstalledFirstFinder.scripts = InstalledFirstFinder.scripts[:-1]


def prefer_installed() -> None:
    """Search the working folder for modules last from now on."""
    sys.meta_path[:] = [
        importlib.machinery.PathFinder if finder is FolderLastFinder else finder
        for finder in sys.meta_path
    ]
    InstalledFirstFinder.replace()
    vars(interactiveshell)["prepended_to_syspath"] = ScriptFolder


def ignore_folder_pdbrc() -> None:
    """Make debuggers ignore a `.pdbrc` in the folder, whose lines they would run.

    They still read `~/.pdbrc`.
    """
    original = pdb.Pdb.__init__
    signature = inspect.signature(original)

    def start(self: pdb.Pdb, *args: Any, **options: Any) -> None:
        given = signature.bind(self, *args, **options)
        reads = given.arguments.get("readrc", True)
        given.arguments["readrc"] = False
        original(*given.args, **given.kwargs)
        if reads:
            try:
                text = Path("~/.pdbrc").expanduser().read_text("utf-8")
            except OSError:
                return
            vars(self)["rcLines"] = text.splitlines(keepends=True)

    vars_of_class: Any = pdb.Pdb
    vars_of_class.__init__ = start


class PatientKernelApp(IPKernelApp):
    """A kernel that finds modules in its folder from the first cell on."""

    def init_path(self) -> None:
        """Leave the folder out while the kernel is set up."""

    def initialize(self, argv: list[str] | None = None) -> None:
        """Set up the kernel, and wait for a cell."""
        prefer_installed()
        ignore_folder_pdbrc()
        super().initialize(argv)
        shell: Any = self.shell
        with suppress(ImportError):  # an environment may lack the SDK
            shell.extension_manager.load_extension("slipway")
        shell.events.register("pre_execute", self.admit_folder)

    def admit_folder(self) -> None:
        """Find modules in the folder from now on, after all others."""
        shell: Any = self.shell
        shell.events.unregister("pre_execute", self.admit_folder)
        if not (self.ignore_cwd or sys.flags.safe_path or _HERE in sys.path):
            sys.path.append(_HERE)


if __name__ == "__main__":
    PatientKernelApp.launch_instance()
