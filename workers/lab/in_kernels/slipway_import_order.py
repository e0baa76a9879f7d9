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


# Modules whose frames are between an import and the code that contains it.
_BY_NAME = frozenset({"importlib", "importlib.util"})
_IMPORT_SYSTEM = _BY_NAME | {"importlib._bootstrap", "importlib._bootstrap_external", __name__}
# Modules that check for packages with functions that receive their names.
_PROBES = frozenset({"pandas.compat._optional"})


class FolderLastFinder(PathFinder):
    """Looks for modules everywhere else before the entries `folder` of the path.

    Being last in the list is not enough: a module there would hide a package without `__init__.py`,
    and what an editable install finds. And packages try to import others, which may not be there.
    """

    folder = frozenset({""})
    installed: "tuple[str, ...]" = ()

    @classmethod
    def replace(cls) -> None:
        """Replace Python's own finder."""
        places = {entry for entry in sys.path if entry and entry not in cls.folder}
        places.add(os.path.dirname(os.__file__))
        places |= {os.path.realpath(place) for place in places}
        cls.installed = tuple(place.rstrip(os.sep) + os.sep for place in places)
        finders: list[object] = sys.meta_path  # type: ignore[assignment]
        if PathFinder in finders:
            finders[finders.index(PathFinder)] = cls

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
        """Return the folders to search last."""
        return [entry for entry in sys.path if entry in cls.folder]

    @classmethod
    def allows(cls, fullname: str) -> bool:
        """Return whether a module may come from the folder.

        Not where an installed module has it in an `import` of its own. One that imports what
        it was given the name of, such as a framework that loads an application, may have it.
        """
        frame, is_by_name = importer()
        if frame is None or not cls.is_installed(frame):
            return True
        if is_by_name:
            return frame.f_globals.get("__name__") not in _PROBES
        names = frame.f_code.co_names
        return not any(name.partition(".")[0] == fullname for name in names)

    @classmethod
    def is_installed(cls, frame: "FrameType") -> bool:
        """Return whether the file of some code is one of an installed package."""
        return str(frame.f_globals.get("__file__", "")).startswith(cls.installed)

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


def importer() -> "tuple[FrameType | None, bool]":
    """Return the code that the import is in, and whether it calls a function to import by a name.

    To be called by `allows`. Code without a file is judged by the code that runs it.
    """
    frame: FrameType | None = sys._getframe(2)
    is_by_name = False
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name in _IMPORT_SYSTEM:
            is_by_name |= name in _BY_NAME
        elif name == "__main__" or frame.f_globals.get("__file__"):
            break
        frame = frame.f_back
    return frame, is_by_name


def put_folder_last() -> None:
    """Make the first import after the start move the folder to the end."""
    if not sys.flags.safe_path:
        sys.meta_path.insert(0, FirstImport())  # type: ignore[arg-type]


class FirstImport:
    """Moves the folder: only the first import comes after Python has put it on the path."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Find nothing by itself, and go away with the first import that is not of the start."""
        if _is_starting():
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        _move_folder()
        # The caller iterates over the list from which this was just removed, so it would skip one.
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


def _move_folder() -> None:
    """Move the entry that Python put first to the end of the path, so that it is searched last."""
    folder = _first_folder()
    names = {""}
    others = tuple(entry.rstrip(os.sep) + os.sep for entry in sys.path if entry not in ("", folder))
    # The folder of an installed program, such as a debugger, contains its own modules.
    if folder in sys.path and not folder.startswith(others):
        sys.path.remove(folder)
        sys.path.append(folder)
        names.add(folder)
    if not folder:
        # Processes of `multiprocessing` also have the current folder's path in sys.path.
        names.add(os.getcwd())
    FolderLastFinder.folder = frozenset(names)
    FolderLastFinder.replace()


def _first_folder() -> str:
    """Return what Python has put on the path of modules for the program it runs."""
    program = sys.argv[0] if sys.argv else ""
    if program in ("", "-", "-c"):
        return ""
    if program == "-m":
        return os.getcwd()
    return os.path.dirname(os.path.realpath(program))
