"""Every Python of a notebook server looks for modules in its own folder last.

Python puts the folder of a script, or the current one for `-m`, `-c` and a prompt, before
everything else. In the shared workspace a colleague's `json.py` would run whenever anything is
started there, `python -m pip` for instance. A `.pth` file of the layer calls `put_folder_last`.

It runs at each start of Python, so it imports nothing that is not loaded by then.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, ModuleType


class FolderLast(PathFinder):
    """Looks for modules everywhere else before the entries `folder` of the path.

    Being last in the list is not enough: a module there would hide a package without `__init__.py`,
    and what an editable install finds.
    """

    folder = frozenset({""})

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Find a module as Python does, but for what lies in the folder."""
        if path is not None:
            return super().find_spec(fullname, path, target)
        spec = super().find_spec(fullname, cls.without_folder(sys.path), target)
        if spec is not None:
            return spec
        for finder in sys.meta_path[sys.meta_path.index(cls) + 1 :]:
            spec = finder.find_spec(fullname, None, target)
            if spec is not None:
                return spec
        folders = cls.folders()
        return cls.find_in(fullname, folders) if folders and cls.allows(fullname) else None

    @classmethod
    def folders(cls) -> "list[str]":
        """Return where to look last."""
        return [entry for entry in sys.path if entry in cls.folder]

    @classmethod
    def allows(cls, fullname: str) -> bool:
        """Return whether a module may come from the folder."""
        return True

    @classmethod
    def find_in(cls, fullname: str, folders: "list[str]") -> "ModuleSpec | None":
        """Find a module in folders."""
        return PathFinder.find_spec(fullname, folders)

    @classmethod
    def _get_spec(
        cls, fullname: str, path: "Sequence[str]", target: "ModuleType | None" = None
    ) -> object:
        """Find a module: packages without `__init__.py` ask again when the path has changed."""
        return super()._get_spec(fullname, cls.without_folder(path), target)  # type: ignore[misc]

    @classmethod
    def without_folder(cls, path: "Sequence[str]") -> "list[str]":
        """Return a path without the folder."""
        return [entry for entry in path if entry not in cls.folder]


def put_folder_last() -> None:
    """Have the first import after the start move the folder to the end."""
    if not sys.flags.safe_path:
        sys.meta_path.insert(0, FirstImport())  # type: ignore[arg-type]


class FirstImport:
    """Moves the folder: only the first import comes after Python has put it on the path."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Find nothing by itself, and go away with the first import that is not of the start."""
        if _is_starting():
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        folder = _first_folder()
        if folder in sys.path:
            sys.path.remove(folder)
            sys.path.append(folder)
            # What `multiprocessing` starts has the current folder by its name, too.
            FolderLast.folder = frozenset({folder} if folder else {"", os.getcwd()})
            if PathFinder in sys.meta_path:
                finders = sys.meta_path
                finders[finders.index(PathFinder)] = FolderLast
        # The caller goes through the list of which this was just removed, and would skip a finder.
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target)  # type: ignore[arg-type]
            if spec is not None:
                return spec
        return None


def _is_starting() -> bool:
    """Return whether the import is one of the `site` module, before the folder is on the path."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "site":
            return True
        frame = frame.f_back
    return False


def _first_folder() -> str:
    """Return what Python has put on the path of modules for the program it runs."""
    program = sys.argv[0] if sys.argv else ""
    if program in ("", "-", "-c"):
        return ""
    if program == "-m":
        return os.getcwd()
    return os.path.dirname(os.path.realpath(program))
