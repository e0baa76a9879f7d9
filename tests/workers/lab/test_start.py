"""What a start reads: nothing that other members of the project may have written."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from workers.lab.workspace import Workspace, forget_variables, legacy_folder

MODULES = (
    *("ipykernel_launcher", "ipykernel", "IPython", "json", "pathlib", "psutil", "zmq", "comm"),
    *("tornado", "traitlets", "debugpy", "matplotlib_inline", "sitecustomize", "usercustomize"),
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The folders of a first start, with everything planted that members can plant."""
    made = Workspace(tmp_path / "workspace", tmp_path / "person", "server", tmp_path / "home")
    for folder in (made.workspace, made.person, made.home):
        folder.mkdir()
    for name in (*MODULES, "beside"):
        (made.workspace / f"{name}.py").write_text(f"open('ran-{name}', 'w').close()\n")
    monkeypatch.setenv("SLIPWAY_LAB_PERSON", "usr_1")
    monkeypatch.setenv("SLIPWAY_LAB_NAME", 'Ada "A\\" Lovelace')
    monkeypatch.setenv("SLIPWAY_LAB_EMAIL", "ada@example.org")
    old = legacy_folder(made)
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = old / f"packages-{minor}" / "lib" / f"python{minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "planted.pth").write_text(f"import os; open({str(old / 'ran')!r}, 'w').close()\n")
    (old / "lab" / "server" / "settings").mkdir(parents=True)
    (old / "lab" / "server" / "settings" / "planted.json").write_text("{}")
    made.prepare(before=old)
    return made


@pytest.fixture
def kernel(desk: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingKernelClient]:
    """A kernel in the workspace, as the server starts it."""
    for name, value in desk.variables().items():
        monkeypatch.setenv(name, value)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(desk.workspace))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def printed(client: BlockingKernelClient, code: str) -> str:
    """Run a cell; returns what it prints, or how it fails."""
    texts: list[str] = []

    def collect(message: dict[str, Any]) -> None:
        content = message["content"]
        texts.extend(content.get("traceback", [content.get("text", "")]))

    try:
        client.execute_interactive(code, timeout=60, output_hook=collect)
    except Empty:
        raise AssertionError(f"no answer to {code}: {texts}") from None
    return "".join(texts)


@pytest.mark.thorough
def test_a_kernel_imports_nothing_from_its_folder_before_a_cell_does(
    desk: Workspace, kernel: BlockingKernelClient
) -> None:
    kernel.complete("impo", reply=True, timeout=60)
    kernel.inspect("print", reply=True, timeout=60)
    assert sorted(path.name for path in desk.workspace.glob("ran-*")) == []
    output = printed(kernel, "import beside, sys, os; print(beside.__file__, os.getcwd())")
    assert output.split() == [str(desk.workspace / "beside.py"), str(desk.workspace)]
    assert sorted(path.name for path in desk.workspace.glob("ran-*")) == ["ran-beside"]
    # The folder comes after the standard library and after packages.
    path = json.loads(printed(kernel, "import json; print(json.dumps(sys.path))"))
    assert path.count("") == 1
    assert path[-1] == ""
    assert str(Path(__file__).parents[3] / "workers" / "lab") not in path


def test_nothing_of_the_old_shared_folder_is_taken_over(desk: Workspace) -> None:
    python = desk.packages / "bin" / "python"
    subprocess.run([python, "-c", "import slipway"], check=True, env={}, cwd=desk.home)
    assert not (legacy_folder(desk) / "ran").exists()
    assert not list(desk.person.rglob("planted*"))
    readme = desk.person / "README.md"
    assert str(legacy_folder(desk)) in readme.read_text()
    # It is the person's to change or remove.
    readme.unlink()
    desk.prepare(before=legacy_folder(desk))
    assert not readme.exists()


PROGRAMS = "pip --version; slipway --version; command -v python3.11 pip3; git var GIT_AUTHOR_IDENT"


def assert_programs(printed: str, desk: Workspace) -> None:
    """Check what PROGRAMS printed: all of the layer, and the author of commits."""
    programs = desk.packages / "bin"
    assert "(python 3.11)" in printed, printed
    assert "/usr/lib/python3/dist-packages" not in printed, printed
    assert "slipway " in printed.lower(), printed
    assert f"{programs / 'python3.11'}\n{programs / 'pip3'}\n" in printed.replace("\r", "")
    assert 'Ada "A\\" Lovelace <ada@example.org>' in printed


@pytest.mark.thorough
def test_cells_find_pip_slipway_and_git(desk: Workspace, kernel: BlockingKernelClient) -> None:
    assert_programs(printed(kernel, f"!{PROGRAMS}"), desk)
    # Any other pip refuses to install into the host's Python.
    others = printed(kernel, f"!{sys.base_prefix}/bin/python3 -I -m pip install nothing")
    assert "virtualenv" in others or "No module named pip" in others, others
    assert sorted(path.name for path in desk.workspace.glob("ran-*")) == []
    # Without ipywidgets each progress bar begins with a red warning.
    bars = "from tqdm.auto import tqdm; print([*tqdm('ab')])"
    assert "TqdmWarning" not in printed(kernel, bars)


@pytest.mark.thorough
def test_terminals_find_them_too(desk: Workspace) -> None:
    # A login shell: /etc/profile has replaced PATH by the time the prompt is there.
    variables = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"} | desk.variables()
    shell = subprocess.run(
        desk.terminal_command(),
        input=f"{PROGRAMS}\n",
        env=variables,
        cwd=desk.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_programs(shell.stdout, desk)


def test_an_empty_workspace_gets_an_example_once(tmp_path: Path) -> None:
    new = Workspace(tmp_path / "new", tmp_path / "person", "server", tmp_path / "home")
    for folder in (new.workspace, new.person, new.home):
        folder.mkdir()
    new.prepare(before=legacy_folder(new))
    example = new.workspace / "welcome.ipynb"
    assert json.loads(example.read_bytes())["nbformat"] == 4
    templates = sorted((new.workspace / "templates").iterdir())
    assert [file.name for file in templates] == [
        *("deploy-a-model.ipynb", "explore-data.ipynb", "submit-a-job.ipynb")
    ]
    for file in templates:
        for cell in json.loads(file.read_bytes())["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not source.startswith("%%slipway"):
                compile(source, file.name, "exec")
    # It is the project's to change or remove.
    example.rename(new.workspace / "mine.ipynb")
    new.prepare(before=legacy_folder(new))
    assert not example.exists()


def test_every_folder_of_a_start_is_out_of_the_workspace(desk: Workspace) -> None:
    shared = {"JUPYTERHUB_ROOT_DIR": str(desk.workspace)}
    variables = desk.variables()
    for name, value in variables.items():
        is_shared = any(part.startswith(str(desk.workspace)) for part in value.split(":"))
        assert is_shared == (name in shared), name
    assert not any(str(desk.workspace) in argument for argument in desk.arguments())
    assert variables["HOME"] == str(desk.person)


def test_variables_that_lead_to_code_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = ("BASH_ENV", "JUPYTER_CONFIG_PATH", "XDG_CONFIG_HOME", "GIT_CONFIG_COUNT")
    harmless = ("GIT_TOKEN", "ENVIRONMENT", "JUPYTERHUB_USER", "DATABASE_URL")
    for name in (*leading, *harmless):
        monkeypatch.setenv(name, "/workspace/planted")
    forget_variables()
    assert not set(leading) & set(os.environ)
    assert set(harmless) <= set(os.environ)
