"""Copies of the packages that the SDK needs, which jobs with an environment of their own find."""

import re
import shutil
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from slipway.bundled_packages import folder_in

# What `slipway` imports in a job. Rich and Typer are for its command line alone.
_NEEDED: Final = ("httpx", "platformdirs", "pydantic")
_VERSIONS: Final = "versions.txt"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def bundle_packages(place: Path) -> None:
    """Copy the packages beside the SDK in `place`, readable to all, unless they are there.

    They are about 10 MB. A folder that an agent left half written is replaced as a whole.
    """
    needed = _closure()
    versions = "".join(f"{name}=={needed[name].version}\n" for name in sorted(needed))
    folder = folder_in(place)
    if _read(folder / _VERSIONS) == versions:
        return
    folder.parent.mkdir(mode=0o755, exist_ok=True)
    folder.parent.chmod(0o755)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    for package in needed.values():
        _copy(package, draft)
    (draft / _VERSIONS).write_text(versions)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


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
                waiting.append(named[0].lower())
    return needed


def _copy(package: Distribution, folder: Path) -> None:
    for file in package.files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.locate(), target)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
