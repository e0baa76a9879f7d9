"""A module in the shared folder is imported by those who name it, and by nothing else."""

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.lab_imports import (
    CELLS,
    COMPLETIONS,
    INSPECTED,
    OWN,
    PROCESSES,
    RECORDED,
    RECORDER,
    plant,
    traces,
)
from workers.lab.workspace import Workspace

_PATIENCE_S = 120


@contextmanager
def running_kernel(
    desk: Workspace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BlockingKernelClient]:
    """Yield a client of a kernel in the workspace, started as the server does."""
    for name, value in desk.variables().items():
        monkeypatch.setenv(name, value)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(desk.workspace))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=_PATIENCE_S)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def desk(tmp_path: Path) -> Workspace:
    """The folders of a first start."""
    desk = Workspace(tmp_path / "workspace", tmp_path / "person", "server", tmp_path / "home")
    for folder in (desk.workspace, desk.person, desk.home):
        folder.mkdir()
    desk.prepare(before=tmp_path / "none")
    return desk


def printed(client: BlockingKernelClient, code: str) -> str:
    """Run a cell; returns what it prints, or how it fails."""
    texts: list[str] = []

    def collect(message: dict[str, Any]) -> None:
        content = message["content"]
        texts.extend(content.get("traceback", [content.get("text", "")]))

    try:
        client.execute_interactive(
            code, timeout=_PATIENCE_S, output_hook=collect, allow_stdin=False
        )
    except Empty:
        raise AssertionError(f"no answer to {code}: {texts}") from None
    return "".join(texts)


def use(client: BlockingKernelClient, cells: tuple[str, ...] = CELLS) -> None:
    """Do what people and JupyterLab do all day."""
    printed(client, "pass")
    for code in COMPLETIONS:
        client.complete(code, reply=True, timeout=_PATIENCE_S)
    for code in INSPECTED:
        client.inspect(code, detail_level=1, reply=True, timeout=_PATIENCE_S)
    for code in cells:
        printed(client, code)
    request = {"seq": 1, "type": "request", "command": "initialize", "arguments": {}}
    client.control_channel.send(client.session.msg("debug_request", request))
    client.control_channel.get_msg(timeout=_PATIENCE_S)


@pytest.mark.thorough
def test_nothing_that_is_imported_by_itself_comes_from_the_folder(
    desk: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_kernel(desk, monkeypatch) as plain:
        printed(plain, RECORDER)
        use(plain)
        listed = printed(plain, RECORDED)
    names = set(json.loads(listed.partition("recorded ")[2])) - OWN
    # Some that are installed, some that are not, and some of which a subprocess begins.
    assert {"stack_data", "jedi", "pexpect", "matplotlib_inline", "numexpr", "mlflow"} <= names
    (desk.workspace / "script_of_mine.py").unlink(missing_ok=True)
    plant(desk.workspace, names | {"planted_one", "pip", "sitecustomize", "usercustomize"})
    # What the metadata of a package offers is imported by name.
    metadata = desk.workspace / "planted-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[mlflow.run_context_provider]\nplanted = planted_one:Any\n"
        "[matplotlib.backend]\nplanted = planted_one\n"
    )
    with running_kernel(desk, monkeypatch) as victim:
        use(victim)
        assert traces(desk.workspace) == []
        use(victim, PROCESSES)
        assert traces(desk.workspace) == []
        # The same file runs as soon as a cell names it.
        assert "planted_one" in printed(victim, "import planted_one")
        assert traces(desk.workspace) == ["planted_one"]


@pytest.mark.thorough
def test_modules_beside_the_notebook_are_imported_by_name(
    desk: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "helper.py": "import second\ndef double(x):\n    return 2 * second.one() * x\n"
        "class Kept:\n    pass\n",
        "second.py": "def one():\n    return 1\n",
        "package/__init__.py": "from package.part import name\n",
        "package/part.py": "name = 'part'\n",
        "below/script.py": "import beside_script\nprint('ran', beside_script.name)\n",
        "below/beside_script.py": "name = 'beside'\n",
        "extension.py": "def load_ipython_extension(shell):\n    print('loaded')\n",
    }
    for path, text in files.items():
        (desk.workspace / path).parent.mkdir(exist_ok=True)
        (desk.workspace / path).write_text(text)
    with running_kernel(desk, monkeypatch) as kernel:
        assert printed(kernel, "import helper; print(helper.double(2))") == "4\n"
        assert printed(kernel, "import package; print(package.name)") == "part\n"
        assert "ran beside" in printed(kernel, "%run below/script.py")
        assert "loaded" in printed(kernel, "%load_ext extension")
        assert "part" in printed(kernel, "import importlib; importlib.reload(package).name") + (
            printed(kernel, "print(importlib.import_module('package.part').name)")
        )
        dumped = "import pickle; text = pickle.dumps(helper.Kept()); del sys.modules['helper']"
        printed(kernel, f"import sys; {dumped}")
        assert "Kept" in printed(kernel, "print(type(pickle.loads(text)).__name__)")
        spawned = (
            "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "    print(pool.map(helper.double, [4]))"
        )
        assert "[8]" in printed(kernel, f"import helper\n{spawned}")
        assert "8" in printed(kernel, "!python -c 'import helper; print(helper.double(4))'")
        assert "ran beside" in printed(kernel, "!python below/script.py")
        # The folder follows the notebook to where it goes.
        printed(kernel, "import os; os.chdir('below'); del sys.modules['beside_script']")
        assert printed(kernel, "import beside_script; print(beside_script.name)") == "beside\n"
        # It comes last, after everything that is installed.
        path = json.loads(printed(kernel, "import json; print(json.dumps(sys.path))"))
        assert path[-1] == ""
        assert path.count("") == 1


@pytest.mark.thorough
def test_a_debugger_reads_no_commands_from_the_folder(
    desk: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.workspace / ".pdbrc").write_text("!open('ran-pdbrc', 'w').close()\n")
    (desk.person / ".pdbrc").write_text("!print('mine')\n")
    with running_kernel(desk, monkeypatch) as kernel:
        read = "import pdb; print(pdb.Pdb(readrc=True).rcLines, pdb.Pdb(readrc=False).rcLines)"
        assert printed(kernel, read) == "[\"!print('mine')\\n\"] []\n"
        printed(kernel, "1/0")
        printed(kernel, "%debug")
    assert traces(desk.workspace) == []


def test_a_program_of_the_layer_finds_what_is_installed_first(desk: Workspace) -> None:
    plant(desk.workspace, {"json", "pip", "pandas", "numpy"})
    (desk.workspace / "main.py").write_text("import helper, json, numpy; print(helper.name)")
    (desk.workspace / "helper.py").write_text("name = 'beside'\n")
    python = str(desk.packages / "bin" / "python")
    for arguments in (["main.py"], ["-m", "main"], ["-c", "import main"]):
        assert run([python, *arguments], desk.workspace) == "beside\n"
    assert traces(desk.workspace) == []
    # A package without `__init__.py` is no less installed.
    site = desk.packages / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site / "spread").mkdir()
    (site / "spread" / "part.py").write_text("name = 'installed'\n")
    plant(desk.workspace, {"spread"})
    (desk.workspace / "spread").mkdir()
    (desk.workspace / "spread" / "evil.py").write_text("")
    code = "import spread.part, sys; sys.path.append('/x'); import spread.evil"
    with pytest.raises(AssertionError, match=r"No module named 'spread\.evil'"):
        run([python, "-c", code], desk.workspace)
    assert traces(desk.workspace) == []
    # What somebody puts first by name is left there.
    (desk.workspace / "lib").mkdir()
    (desk.workspace / "lib" / "first.py").write_text("")
    code = "import sys; sys.path.insert(0, 'lib'); import first; print(sys.path[0], sys.path[-1])"
    assert run([python, "-c", code], desk.workspace) == "lib \n"


def run(command: list[str], folder: Path) -> str:
    """Run a program without variables; returns what it prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={}, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
