"""Build of the wheel of the SDK and command line, by uv and without the network."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from django.conf import settings
from uv import find_uv_bin

from portal.config.setup.lock import file_lock
from portal.web.docs.client import WHEEL_NAME, wheel_folder

_PACKAGE = Path("platform") / "slipway"
_BESIDE = ("pyproject.toml", "README.md", "LICENSE")
_STAMP = ".stamp"
_LONGEST_S = 60


class WheelError(Exception):
    """The wheel could not be built. The message is what uv reported."""


def build_client_wheel() -> bool:
    """Build the wheel if the source changed. Returns True if it was built. Raises WheelError."""
    folder = wheel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / _STAMP
    with file_lock(folder / ".lock"):
        fingerprint = _fingerprint()
        has_wheel = (folder / WHEEL_NAME).exists() and stamp.exists()
        if has_wheel and stamp.read_text(encoding="utf-8") == fingerprint:
            return False
        # In the same file system, so that the wheel is replaced in one step.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            _build(Path(scratch)).replace(folder / WHEEL_NAME)
        stamp.write_text(fingerprint, encoding="utf-8")
        return True


def _sources() -> list[Path]:
    """Return the files of the wheel, from the root of the source."""
    root = Path(settings.SLIPWAY_ROOT)
    package = [
        path.relative_to(root)
        for path in sorted((root / _PACKAGE).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return [*map(Path, _BESIDE), *package]


def _fingerprint() -> str:
    root, digest = Path(settings.SLIPWAY_ROOT), hashlib.sha256()
    try:
        for path in _sources():
            content = hashlib.sha256((root / path).read_bytes()).hexdigest()
            digest.update(f"{path}\0{content}\n".encode())
    except OSError as error:
        raise WheelError(str(error)) from error
    return digest.hexdigest()


def _build(scratch: Path) -> Path:
    """Build from a copy, because the source may be read-only."""
    source, output = scratch / "source", scratch / "wheel"
    for path in _sources():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(settings.SLIPWAY_ROOT) / path, target)
    command = [find_uv_bin(), "build", "--wheel", "--offline", "--no-config", "--no-cache"]
    try:
        subprocess.run(
            [*command, "--out-dir", str(output), str(source)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )
    except subprocess.CalledProcessError as error:
        raise WheelError(str(error.stderr).strip() or f"uv ended with {error.returncode}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WheelError(str(error)) from error
    return output / WHEEL_NAME
