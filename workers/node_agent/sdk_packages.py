"""Packages that the SDK needs, which jobs with an environment of their own find."""

import logging
import os
import re
import shutil
import stat
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from slipway.bundled_packages import folder_in

log = logging.getLogger(__name__)
# Imports of the SDK in a job. Rich and Typer are for its command line alone.
_NEEDED: Final = ("httpx", "platformdirs", "pydantic")
_VERSIONS: Final = "versions.txt"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def bundle_packages(place: Path) -> None:
    """Put the packages beside the SDK in `place`, readable to all, unless they are there.

    They are hard links where that is possible, otherwise copies of about 10 MB. A folder that an
    agent left half written is replaced as a whole. Where the disk is full, jobs do without.
    """
    needed = _closure()
    versions = "".join(f"{name}=={needed[name].version}\n" for name in sorted(needed))
    folder = folder_in(place)
    if _read(folder / _VERSIONS) == versions:
        return
    folder.parent.mkdir(mode=0o755, exist_ok=True)
    folder.parent.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        for package in needed.values():
            _add(package, draft)
        (draft / _VERSIONS).write_text(versions)
        for path in (draft, *draft.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        log.warning("the packages of the SDK could not be put beside it: %s", error)


def _closure() -> dict[str, Distribution]:
    """Return what is needed, and what that needs. What is not installed here is left out."""
    waiting, needed = list(_NEEDED), dict[str, Distribution]()
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        try:
            needed[name] = distribution(name)
        except PackageNotFoundError:
            continue
        for line in needed[name].requires or ():
            named = _NAME.match(line)
            # Other markers exclude only what is not installed here either.
            if named is not None and "extra ==" not in line:
                waiting.append(named[0].lower().replace("_", "-"))
    return needed


def _add(package: Distribution, folder: Path) -> None:
    for file in package.files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        source, target = Path(str(file.locate())), folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not source.stat().st_mode & stat.S_IROTH:
                raise PermissionError
            os.link(source, target)
        except OSError:  # another file system, or a file that others may not read
            shutil.copyfile(source, target)
            target.chmod(0o644)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
