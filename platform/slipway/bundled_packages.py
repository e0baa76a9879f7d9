"""Packages of the SDK that a node keeps beside it, for environments without them.

A job's own environment has what its requirements name, and `import slipway` works there, too. The
SDK finds its packages in the folder `bundled` then, behind those of the environment. Scripts do not
find them: what a script imports without naming it is missing here as it would be elsewhere.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_FOLDER = "bundled"


def folder_in(place: Path) -> Path:
    """Return the folder of packages for this Python: compiled ones fit one minor version."""
    return place / _FOLDER / str(sys.implementation.cache_tag)


def use_bundled_packages() -> None:
    """Let the SDK import what is bundled beside it. Does nothing where nothing is."""
    folder = folder_in(Path(__file__).parents[1])
    if folder.is_dir() and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder(folder))


class _Finder(MetaPathFinder):
    """Finds bundled packages for modules of the SDK and for each other, after all other finders."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._names = {entry.name.removesuffix(".py") for entry in folder.iterdir()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a bundled package is, or None for everything else and for everyone else."""
        if path is not None or fullname not in self._names:
            return None
        importer = _importer().partition(".")[0]
        if importer != "slipway" and importer not in self._names:
            return None
        return PathFinder.find_spec(fullname, [self._folder], target)


def _importer() -> str:
    """Return the name of the module that imports, which Python does not tell a finder."""
    frame = sys._getframe(2)  # noqa: SLF001 - there is no public way
    while True:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(("importlib", "_frozen_importlib")) or frame.f_back is None:
            return name
        frame = frame.f_back
