"""Starts a Python kernel that imports nothing from the folder it works in before its first cell.

A script, run by the interpreter of a person's packages. `python -m ipykernel_launcher` looks for
modules in the folder of the notebook first, and that one is shared: a colleague's `pathlib.py` or
`ipykernel_launcher.py` would run as soon as a notebook is opened.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder of this script: its modules are no kernel's

from typing import Any

from ipykernel.kernelapp import IPKernelApp


class PatientKernelApp(IPKernelApp):
    """A kernel that finds modules in its folder from the first cell on, as every kernel does."""

    def init_path(self) -> None:
        """Leave the folder out while the kernel is set up."""

    def initialize(self, argv: list[str] | None = None) -> None:
        """Set up the kernel, and wait for a cell."""
        super().initialize(argv)
        shell: Any = self.shell
        shell.events.register("pre_execute", self.admit_folder)

    def admit_folder(self) -> None:
        """Find modules in the folder from now on."""
        shell: Any = self.shell
        shell.events.unregister("pre_execute", self.admit_folder)
        super().init_path()


if __name__ == "__main__":
    PatientKernelApp.launch_instance()
