"""The folders of a notebook server: what is the project's, the person's, and this start's.

All members of the project write into the workspace, so nothing there may be executed or believed by
a start. Packages, settings, HOME and everything else that a start reads is in the personal folder,
which no other member's tasks see. What ends with the task (connection files of kernels, Jupyter's
own configuration) stays in the task's home.
"""

import importlib.util
import json
import os
import shlex
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from workers.lab.personal import PERSONAL

_FOLDERS_OF_OURS: Final = ("workspaces", "settings", "defaults")
# Autosave interval while a user types, so that a stop loses nothing.
_AUTOSAVE_S: Final = 10
_SHELL: Final = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
_KERNEL: Final = Path(__file__).with_name("kernel.py")
_WELCOME: Final = Path(__file__).with_name("welcome.ipynb")
_TEMPLATES: Final = Path(__file__).with_name("templates")
_IN_KERNELS: Final = Path(__file__).with_name("in_kernels")
_ORDER: Final = "import slipway_import_order; slipway_import_order.put_folder_last()"
_DEFAULTS: Final = {
    "@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": _AUTOSAVE_S},
    "@jupyterlab/apputils-extension:notification": {
        "checkForUpdates": False,
        "fetchNews": "false",
    },
    # An open tab should cost next to nothing.
    "@jupyterlab/git:plugin": {"refreshInterval": 10_000},
    "@jupyter-server/resource-usage:topbar-item": {"enable": True},
}
_DISABLED: Final = (
    # Part of nbdime, which compares versions. Its buttons need a server extension that our servers
    # do not load.
    "nbdime-jupyterlab",
    # Menu items that lead into JupyterHub, where people can do nothing. Slipway has the pages.
    "@jupyterlab/hub-extension",
    # Language servers, which our servers do not start: jupyter-lsp looks for their programs in the
    # workspace, which is shared.
    "@jupyterlab/lsp-extension",
    "@jupyterlab/notebook-extension:language-server",
    "@jupyterlab/fileeditor-extension:language-server",
    # The same figures as in the bar at the top.
    "@jupyter-server/resource-usage:status-item",
)
# Variables in which shells, git, Node and Jupyter look for code to run. The project's secrets are
# variables too, and may contain paths in the workspace.
_LEADING_TO_CODE: Final = frozenset(
    {
        *("BASH_ENV", "PROMPT_COMMAND", "INPUTRC", "ZDOTDIR", "IPYTHONDIR"),
        *("NODE_OPTIONS", "NODE_PATH", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB"),
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER", "GIT_DIR"),
        *("GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_TEMPLATE_DIR"),
        *("SSH_ASKPASS", "LESSOPEN", "LESSCLOSE"),
    }
)
_FAMILIES_LEADING_TO_CODE: Final = ("JUPYTER_", "XDG_", "GIT_CONFIG", "BASH_FUNC_")
_ABOUT: Final = """# Your personal folder

Only you see what is in here: it is your home folder (`~`) in all your notebook servers of this
project on this node. JupyterLab shows it as `personal`. Everything beside it is the project's
workspace, which all members read and change.

Notebooks in here have no versions in the project.
"""
_NOT_FOR_JOBS: Final = "# Jobs that are submitted from here get no hidden files.\n/.*\n"
_ABOUT_MOVE: Final = """
## Your previous files

An earlier release kept packages, settings and history in the workspace, below
`{old}`,
where other members could change them. Nothing was migrated, because your server would execute it.
Install packages again with `pip install`, copy what you recognize, then delete that folder.
"""


@dataclass(frozen=True)
class Workspace:
    """The folders of one server of one person."""

    workspace: Path
    person: Path
    server: str
    home: Path

    @property
    def packages(self) -> Path:
        """The environment that `pip` installs into: a layer over the one the server runs in."""
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self.person / ".slipway" / f"packages-{minor}"

    @property
    def lab(self) -> Path:
        """Folder of JupyterLab's state between starts: settings and open documents."""
        return self.person / ".slipway" / "lab" / self.server

    @property
    def own(self) -> Path:
        """The current folder of the server itself.

        Jupyter looks into its current folder for templates, programs and more, so it is not the
        workspace. The link has terminals find `personal` as the file browser does.
        """
        return self.home / "server"

    @property
    def git_defaults(self) -> Path:
        """The configuration of git below the person's own `~/.gitconfig`."""
        return self.home / "gitconfig"

    def prepare(self, *, before: Path) -> None:
        """Create all folders and files. Existing user data is not changed.

        `before` is the folder in the workspace that earlier releases had for this person.
        """
        self._welcome()
        self._explain(before)
        self.own.mkdir(parents=True, exist_ok=True)
        link = self.own / PERSONAL
        link.unlink(missing_ok=True)
        link.symlink_to(self.person)
        for name in _FOLDERS_OF_OURS:
            (self.lab / name).mkdir(parents=True, exist_ok=True)
        page = {
            "disabledExtensions": _DISABLED,
            "slipwayPage": os.environ.get("SLIPWAY_LAB_PAGE", ""),
        }
        for name, values in (("overrides", _DEFAULTS), ("page_config", page)):
            (self.lab / "defaults" / f"{name}.json").write_text(json.dumps(values), "utf-8")
        create_package_layer(self.packages)
        self.git_defaults.write_text(_git_defaults(), "utf-8")
        self._write_kernel()

    def _welcome(self) -> None:
        """Write an example notebook and templates into a workspace that is still empty."""
        if any(self.workspace.iterdir()):
            return
        # Another server of the project may do the same at this moment.
        with suppress(FileExistsError), (self.workspace / _WELCOME.name).open("xb") as file:
            file.write(_WELCOME.read_bytes())
        with suppress(FileExistsError):
            (self.workspace / _TEMPLATES.name).mkdir()
            _copy_files(_TEMPLATES, self.workspace / _TEMPLATES.name)

    def _explain(self, before: Path) -> None:
        """Write a file to the personal folder that explains it, once."""
        ours = self.person / ".slipway"
        if ours.exists():
            return
        ours.mkdir(parents=True)
        moved = _ABOUT_MOVE.format(old=before) if before.is_dir() else ""
        for name, text in (("README.md", _ABOUT + moved), (".slipwayignore", _NOT_FOR_JOBS)):
            with suppress(FileExistsError), (self.person / name).open("x") as file:
                file.write(text)

    def _write_kernel(self) -> None:
        kernel = self.home / "jupyter" / "kernels" / "python3"
        kernel.mkdir(parents=True, exist_ok=True)
        python = str(self.packages / "bin" / "python")
        metadata: dict[str, object] = {"debugger": True}
        if encrypts_kernels(self.packages):
            metadata["supported_encryption"] = ["curve"]
        spec = {
            "argv": [python, str(_KERNEL), "-f", "{connection_file}"],
            "display_name": f"Python {sys.version_info.major}.{sys.version_info.minor}",
            "language": "python",
            "metadata": metadata,
        }
        (kernel / "kernel.json").write_text(json.dumps(spec), "utf-8")

    def arguments(self) -> list[str]:
        """Return the options that set JupyterLab's folders. Its default is HOME at import time."""
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
            "IPYTHONDIR": str(self.person / ".ipython"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # Other pips, such as /usr/bin/pip, refuse to change the host's Python.
            "PIP_REQUIRE_VIRTUALENV": "1",
            "VIRTUAL_ENV": str(self.packages),
            "PATH": f"{self.packages / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "SHELL": _SHELL,
            "GIT_CONFIG_SYSTEM": str(self.git_defaults),
        }

    def terminal_command(self) -> list[str]:
        """Return the command of a terminal: the person's shell, which finds what is installed here.

        Terminals are login shells, and `/etc/profile` of most systems replaces PATH. So the first
        shell reads the profiles, and the second has the folders of programs in front again.
        """
        programs = f"{self.packages / 'bin'}:{Path(sys.prefix) / 'bin'}"
        script = f'PATH={shlex.quote(programs)}:"$PATH"; export PATH; exec {_SHELL} -i'
        return [_SHELL, "-l", "-c", script]


def _copy_files(source: Path, target: Path) -> None:
    """Copy the notebooks of a folder. Other members may have put a link in place of the target."""
    folder = os.open(target, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for file in sorted(source.glob("*.ipynb")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(file.name, flags, 0o666, dir_fd=folder), "wb") as copy:
                copy.write(file.read_bytes())
    finally:
        os.close(folder)


def encrypts_kernels(layer: Path) -> bool:
    """Return whether the ipykernel that kernels of this layer import encrypts its messages.

    Without that, a kernel sends its outputs to any client of its loopback port. A user may have
    installed an older version over ours, which would not understand the keys.
    """
    own = layer / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    places = [str(own), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    spec = PathFinder.find_spec("ipykernel", places)
    if spec is None or spec.origin is None:
        return False
    kernel_spec = Path(spec.origin).with_name("kernelspec.py")
    return kernel_spec.is_file() and "supported_encryption" in kernel_spec.read_text("utf-8")


def current_workspace() -> Workspace:
    """Return the workspace that this process was started for.

    If the agent does not provide a personal folder yet, it ends with the task. It is private all
    the same.
    """
    home = Path(os.environ["HOME"])
    return Workspace(
        workspace=Path(os.environ["SLIPWAY_PERSISTENT_DIR"]),
        person=Path(os.environ.get("SLIPWAY_PERSONAL_DIR") or home / PERSONAL),
        server=os.environ.get("JUPYTERHUB_SERVER_NAME", "server"),
        home=home,
    )


def legacy_folder(desk: Workspace) -> Path:
    """Return where earlier releases had this person's folder, in the workspace."""
    return desk.workspace / ".slipway" / "people" / os.environ.get("SLIPWAY_LAB_PERSON", "person")


def forget_variables() -> None:
    """Drop the variables that lead shells, git, Node and Jupyter to code."""
    if _SHELL == "/bin/sh":
        os.environ.pop("ENV", None)  # bash ignores this variable
    for name in list(os.environ):
        if name in _LEADING_TO_CODE or name.startswith(_FAMILIES_LEADING_TO_CODE):
            del os.environ[name]


def create_package_layer(folder: Path) -> None:
    """Create a virtual environment on top of ours, into which users can install packages.

    It copies nothing: a path file names the packages of the environment below. An unchanged
    environment is left alone, and a different one below (a new image) replaces the old in the file.
    """
    made_from = Path(sys.prefix) / "bin" / "python"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3", f"python{sysconfig.get_python_version()}"):
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
    below += [*_own_paths(), *_pip_of_python()]
    lines = [*dict.fromkeys(below), str(_IN_KERNELS), _ORDER]
    (packages / "slipway-layer.pth").write_text("\n".join(lines) + "\n", "utf-8")
    for name in ("pip", "pip3", f"pip{sysconfig.get_python_version()}", "slipway"):
        _write_program(folder / "bin" / name, module=name if name == "slipway" else "pip")


def _write_program(path: Path, *, module: str) -> None:
    """Write a program that runs a module in the Python beside it.

    Without it a shell would find the system's pip, which installs into the host's Python.
    """
    python = shlex.quote(str(path.with_name("python")))
    text = f'#!/bin/sh\nexec {python} -m {module} "$@"\n'
    if path.is_file() and not path.is_symlink() and path.read_bytes() == text.encode():
        return
    path.unlink(missing_ok=True)  # written by an older release, or by pip when it updated itself
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _git_defaults() -> str:
    """Return git's configuration with the author of commits, which `~/.gitconfig` may change."""
    values = {"name": "SLIPWAY_LAB_NAME", "email": "SLIPWAY_LAB_EMAIL"}
    lines = [f"\t{key} = {_quoted(os.environ.get(name, ''))}" for key, name in values.items()]
    given = [line for line in lines if not line.endswith('""')]
    return "\n".join(["[user]", *given]) + "\n" if given else ""


def _quoted(value: str) -> str:
    """Return a value as git's configuration quotes it."""
    printable = "".join(character for character in value if character.isprintable())
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _own_paths() -> list[str]:
    """Return where the SDK lies, and what MLflow finds of ours in jobs."""
    sdk = importlib.util.find_spec("slipway")
    items = [str(Path(sdk.origin).parents[1])] if sdk is not None and sdk.origin else []
    return [*items, str(Path(__file__).parents[1] / "launcher" / "in_jobs")]


def _pip_of_python() -> list[str]:
    """Return the pip that comes with Python, last in line: some environments have none."""
    bundled = Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled"
    wheels = [*sorted(bundled.glob("pip-*.whl")), *_wheels_of_debian()]
    return [str(wheels[-1])] if wheels else []


def _wheels_of_debian() -> list[Path]:
    return sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))
