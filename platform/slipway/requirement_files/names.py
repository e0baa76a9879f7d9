"""Names of files that say which packages a project needs, and the way from a script to them."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Final

# Files of conda, which bring their own Python. The first one of a folder is used.
CONDA: Final = ("conda-lock.yml", "environment.yml", "environment.yaml")
# The first one of a folder is used.
SOURCES: Final = ("requirements.txt", "uv.lock", "poetry.lock", *CONDA, "pyproject.toml")
# Jobs in containers run in an image that is built from it.
DOCKERFILE: Final = "Dockerfile"
# The file of pyenv and uv that names a version of Python.
PYTHON_VERSION: Final = ".python-version"


def folders_of(script: str) -> Iterator[str]:
    """Yield the folder of a script and those around it, "" for the top of the code."""
    at = posixpath.dirname(posixpath.normpath(script))
    while at:
        yield at
        at = posixpath.dirname(at)
    yield ""


def names_packages(script: str, has: Callable[[str], bool]) -> bool:
    """Return whether some file near a script may say which packages or Python it needs."""
    return any(
        has(posixpath.join(folder, name))
        for folder in folders_of(script)
        for name in (*SOURCES, DOCKERFILE, PYTHON_VERSION)
    )
