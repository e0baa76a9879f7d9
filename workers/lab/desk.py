"""Where a person's things lie in the project's workspace, so that a stop loses none of them.

The workspace is the project's: files, and below `.slipway` a folder for each person with what only
that person's servers use: installed packages, settings, the arrangement of the desk. What must not
be shared with the project's other members (connection files of kernels) stays in the task's home.
"""

import importlib.util
import json
import os
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_FOLDERS_OF_OURS: Final = ("workspaces", "settings", "defaults")
# Saved this often while somebody types, so that a stop finds everything saved.
_AUTOSAVE_S: Final = 10
_DEFAULTS: Final = {
    "@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": _AUTOSAVE_S},
    "@jupyterlab/apputils-extension:notification": {
        "checkForUpdates": False,
        "fetchNews": "false",
    },
}
# It comes with the nbdime that compares versions. What it adds to the page needs a half in the
# server that none of ours loads: buttons that can do nothing.
_PAGE: Final = {"disabledExtensions": ["nbdime-jupyterlab"]}


@dataclass(frozen=True)
class Desk:
    """The folders of one server of one person."""

    workspace: Path
    person: Path
    server: str
    home: Path

    @property
    def packages(self) -> Path:
        """The environment that `%pip` installs into: a layer over the one the server runs in."""
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self.person / f"packages-{minor}"

    @property
    def lab(self) -> Path:
        """What JupyterLab keeps between starts: settings, and the desk as it was left."""
        return self.person / "lab" / self.server

    def prepare(self) -> None:
        """Make everything; what is there already is left as it is."""
        for name in _FOLDERS_OF_OURS:
            (self.lab / name).mkdir(parents=True, exist_ok=True)
        for name, said in (("overrides", _DEFAULTS), ("page_config", _PAGE)):
            (self.lab / "defaults" / f"{name}.json").write_text(json.dumps(said), "utf-8")
        make_layer(self.packages)
        self._write_kernel()

    def _write_kernel(self) -> None:
        kernel = self.home / "jupyter" / "kernels" / "python3"
        kernel.mkdir(parents=True, exist_ok=True)
        python = str(self.packages / "bin" / "python")
        metadata: dict[str, object] = {"debugger": True}
        if encrypts_kernels(self.packages):
            metadata["supported_encryption"] = ["curve"]
        spec = {
            "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": f"Python {sys.version_info.major}.{sys.version_info.minor}",
            "language": "python",
            "metadata": metadata,
        }
        (kernel / "kernel.json").write_text(json.dumps(spec), "utf-8")

    def arguments(self) -> list[str]:
        """Return how JupyterLab is told of these folders; it would look in HOME of its import."""
        return [
            f"--LabApp.workspaces_dir={self.lab / 'workspaces'}",
            f"--LabApp.user_settings_dir={self.lab / 'settings'}",
            f"--LabApp.app_settings_dir={self.lab / 'defaults'}",
        ]

    def variables(self) -> dict[str, str]:
        """Return the variables of the server, its kernels and its terminals."""
        return {
            "HOME": str(self.person),
            "JUPYTERHUB_ROOT_DIR": str(self.workspace),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_PATH": str(self.home / "jupyter"),
            "JUPYTER_PLATFORM_DIRS": "0",
            "IPYTHONDIR": str(self.person / "ipython"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "VIRTUAL_ENV": str(self.packages),
            "PATH": f"{self.packages / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "SHELL": "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
        }


def encrypts_kernels(layer: Path) -> bool:
    """Tell whether the ipykernel that kernels of this layer import encrypts what it publishes.

    Without that, a kernel sends its outputs to whoever connects to its loopback port. Somebody may
    have installed an older version over ours, which would not understand the keys.
    """
    own = layer / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    places = [str(own), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    spec = PathFinder.find_spec("ipykernel", places)
    if spec is None or spec.origin is None:
        return False
    kernel_spec = Path(spec.origin).with_name("kernelspec.py")
    return kernel_spec.is_file() and "supported_encryption" in kernel_spec.read_text("utf-8")


def desk_here() -> Desk:
    """Return the desk this process was started for."""
    workspace = Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
    name = os.environ.get("SLIPWAY_LAB_PERSON", "person")
    return Desk(
        workspace=workspace,
        person=workspace / ".slipway" / "people" / name,
        server=os.environ.get("JUPYTERHUB_SERVER_NAME", "server"),
        home=Path(os.environ["HOME"]),
    )


def make_layer(folder: Path) -> None:
    """Make a virtual environment that finds what ours has, and keeps what is installed into it.

    It needs no copy of anything: a file of paths names the packages of the environment below. The
    same environment again is left alone; another one below (a new image) is named instead.
    """
    made_from = Path(sys.prefix) / "bin" / "python"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        link = folder / "bin" / name
        if not link.is_symlink() or link.readlink() != made_from.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(made_from.resolve())
    (folder / "pyvenv.cfg").write_text(
        f"home = {made_from.resolve().parent}\ninclude-system-site-packages = false\n", "utf-8"
    )
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    below = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    below += [*_ours(), *_pip_of_python()]
    (packages / "slipway-layer.pth").write_text("\n".join(dict.fromkeys(below)) + "\n", "utf-8")


def _ours() -> list[str]:
    """Return where the SDK lies, and what MLflow finds of ours in jobs."""
    sdk = importlib.util.find_spec("slipway")
    found = [str(Path(sdk.origin).parents[1])] if sdk is not None and sdk.origin else []
    return [*found, str(Path(__file__).parents[1] / "launcher" / "in_jobs")]


def _pip_of_python() -> list[str]:
    """Return the pip that comes with Python, last in line: some environments have none."""
    bundled = Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled"
    wheels = [*sorted(bundled.glob("pip-*.whl")), *_wheels_of_debian()]
    return [str(wheels[-1])] if wheels else []


def _wheels_of_debian() -> list[Path]:
    return sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))
