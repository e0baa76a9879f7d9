"""A colleague plants code in the shared workspace; the owner's server runs none of it by itself.

Dora contributes to the project as Bob does, and writes into the workspace from a kernel of her own.
"""

import json
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from tests.lab_imports import (
    CELLS,
    COMPLETIONS,
    INSPECTED,
    OWN,
    PROCESSES,
    RECORDED,
    RECORDER,
    traces,
)
from tests.notebooks import PASSWORD, SERVERS, OpenDesk, Person, notebook_of, run_cell
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.integration

# Runs in Dora's kernel. Each file, once executed by anybody, leaves its name in CANARIES.
_PLANT = """
import os, json, sys
from pathlib import Path
root, victim = Path.cwd(), VICTIM
canaries = root / "canaries"
canaries.mkdir(exist_ok=True)
minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
layer = f"packages-{sys.version_info.major}.{sys.version_info.minor}"

def touch(name):
    return f"open({str(canaries / name)!r}, 'w').close()"

def plant(path, text, mode=0o755):
    path = root / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)

MODULES = ("ipykernel_launcher", "json", "pathlib", "fnmatch", "urllib", "psutil", "zmq", "comm",
           "debugpy", "sitecustomize", "usercustomize", "ipykernel", "IPython", "traitlets",
           "tornado", "jedi", "matplotlib_inline", "nest_asyncio", "stack_data", "decorator",
           "runpy", "pkgutil", "planted")
for folder in ("", "reports/"):
    for name in MODULES:
        plant(f"{folder}{name}.py", touch(f"{folder.strip('/')}module-{name}"))
    for name in ("jupyter_config", "jupyter_server_config", "jupyter_lab_config",
                 "jupyterhub_config", "jupyter_notebook_config", "ipython_config",
                 "ipython_kernel_config"):
        plant(f"{folder}{name}.py", touch(f"{folder.strip('/')}config-{name}"))
        extension = {"ServerApp": {"jpserver_extensions": {"planted": True}}}
        plant(f"{folder}{name}.json", json.dumps(extension))

old = f".slipway/people/{victim}"
for home in ("", f"{old}/"):
    where = home.strip("/").replace("/", "-")
    for name in (".bashrc", ".bash_profile", ".profile", ".bash_login", ".envrc"):
        plant(f"{home}{name}", f"touch {canaries}/shell-{where}{name}\\n")
    plant(f"{home}profile_default/startup/00.py", touch(f"profile-{where}"))
    for place in ("ipython", ".ipython"):
        plant(f"{home}{place}/profile_default/startup/00.py", touch(f"startup-{where}"))
        plant(f"{home}{place}/profile_default/ipython_kernel_config.py", touch(f"kernel-{where}"))
    site = f"{home}.local/lib/{minor}/site-packages"
    plant(f"{site}/planted.pth", f"import sys; {touch(f'user-pth-{where}')}\\n")
    plant(f"{home}.jupyter/jupyter_server_config.py", touch(f"jupyter-{where}"))
    spec = {"argv": ["/bin/sh", "-c", f"touch {canaries}/kernelspec-{where}"], "language": "python",
            "display_name": "Planted"}
    for place in (".local/share/jupyter", "ipython", ".ipython", "share/jupyter"):
        plant(f"{home}{place}/kernels/python3/kernel.json", json.dumps(spec))
        plant(f"{home}{place}/kernels/planted/kernel.json", json.dumps(spec))
site = f"{old}/{layer}/lib/{minor}/site-packages"
plant(f"{site}/planted.pth", f"import sys; {touch('pth')}\\n")
plant(f"{site}/sitecustomize.py", touch("sitecustomize"))
plant(f"{site}/ipykernel_launcher.py", touch("layer-launcher"))
saved = root / old / "saves"
saved.mkdir(parents=True, exist_ok=True)
(saved / "00000000000000000001.save").write_bytes(b"forged.ipynb\\n" + NOTEBOOK)

# Programs that server extensions look for, or run in a repository.
plant("node_modules/.bin/pyright-langserver", f"#!/bin/sh\\ntouch {canaries}/node\\n")
script = f"require('fs').writeFileSync({str(canaries / 'js')!r}, '')"
plant("node_modules/pyright/langserver.index.js", script)
monitor = f"{canaries}/../monitor"
plant("monitor", f"#!/bin/sh\\ntouch {canaries}/fsmonitor\\n")
os.system("git init -q . && git config core.fsmonitor " + monitor)
os.system(f"git config diff.external {monitor}; git config core.pager {monitor}")
plant(".git/hooks/post-index-change", f"#!/bin/sh\\ntouch {canaries}/hook\\n")
# What nbconvert takes templates from.
plant("lab/conf.json", json.dumps({"base_template": "base"}))
plant("lab/index.html.j2", "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}".replace(
    "CANARY", str(canaries / "template")))
print("planted", len(list(canaries.iterdir())))
"""
_TIDY = """
import shutil
from pathlib import Path
for one in Path.cwd().iterdir():
    if one.name not in BEFORE:
        shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
"""


@pytest.fixture(scope="module")
def dora(running: RunningPortal) -> Person:
    """Dora, who contributes as Bob does."""
    return Person(running, "dora", PASSWORD)


@pytest.fixture(scope="module")
def doras(dora: Person) -> Iterator[tuple[OpenDesk, str]]:
    """Dora's JupyterLab, and a kernel that has imported what it needs before she plants."""
    server = dora.ready("planter")
    desk = dora.open(server)
    kernel = desk.kernel()
    desk.run(kernel, "import os, json, sys, shutil, pathlib; BEFORE = set(os.listdir())")
    yield desk, kernel
    desk.run(kernel, _TIDY)
    dora.stop(server)


@pytest.fixture
def workspace(doras: tuple[OpenDesk, str]) -> Path:
    """The shared folder, as it lies on this machine."""
    desk, kernel = doras
    return Path(desk.run(kernel, "print(os.getcwd())").split()[-1])


def _start_kernel(desk: OpenDesk, path: str | None) -> str:
    """Start a kernel and have it answer what JupyterLab asks, without running a cell."""
    if path is None:
        kernel = desk.kernel()
    else:
        body = {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}}
        made = desk.call("POST", "sessions", json=body)
        assert made.status_code == 201, made.text
        kernel = str(made.json()["kernel"]["id"])
    questions: tuple[tuple[str, dict[str, Any]], ...] = (
        ("kernel_info_request", {}),
        ("comm_info_request", {}),
        ("complete_request", {"code": "imp", "cursor_pos": 3}),
        ("inspect_request", {"code": "print", "cursor_pos": 5, "detail_level": 0}),
    )
    with desk.connect(kernel) as channel:
        for kind, content in questions:
            _ask(channel, kind, content, "shell")
    return kernel


def test_a_start_executes_nothing_of_the_shared_folder(
    bob: Person, doras: tuple[OpenDesk, str], workspace: Path
) -> None:
    desk, kernel = doras
    victim = bob.api.get("/whoami").json()["user"]["id"]
    forged = json.dumps(notebook_of("'forged'")["content"]).encode()
    code = _PLANT.replace("VICTIM", repr(victim), 1).replace("NOTEBOOK", repr(forged), 1)
    assert "planted 0" in desk.run(kernel, code), "nothing runs merely because it lies there"
    canaries = workspace / "canaries"

    server = bob.ready("victim")
    bobs = bob.open(server)
    for path in ("contents", "contents/reports", "kernelspecs", "nbconvert"):
        assert bobs.call("GET", path).is_success
    for path in ("lsp/status", "nbdime/api/isgit"):
        bobs.call("GET", path, below="")
    kernels = [_start_kernel(bobs, path) for path in (None, "start.ipynb", "reports/start.ipynb")]
    assert "Planted" not in bobs.call("GET", "kernelspecs").text
    output = bobs.type("true")
    assert "ended-42" in output
    saved = bobs.call("PUT", "contents/mine.ipynb", json=notebook_of("1"))
    assert saved.is_success, saved.text
    wait_for(lambda: bob.file("mine.ipynb"), "the version of Bob's save")
    exported = bobs.call("GET", "html/mine.ipynb", below="nbconvert")
    assert exported.is_success, exported.text
    assert sorted(path.name for path in canaries.iterdir()) == []
    assert bob.file("forged.ipynb") is None, "Dora saved in Bob's name"

    # A cell of Bob's own imports what lies beside it, as in any Jupyter.
    assert "Error" not in bobs.run(kernels[2], "import planted; print(planted.__file__)")
    assert sorted(path.name for path in canaries.iterdir()) == ["reportsmodule-planted"]
    bob.stop(server)


@pytest.mark.thorough
def test_everyday_use_imports_nothing_of_a_colleague(
    bob: Person, doras: tuple[OpenDesk, str], workspace: Path
) -> None:
    desk, kernel = doras
    server = bob.ready("imports")
    bobs = bob.open(server)
    plain = bobs.kernel()
    bobs.run(plain, RECORDER)
    _use(bobs, plain, CELLS)
    listed = bobs.run(plain, RECORDED).partition("recorded ")[2]
    names = set(json.loads(listed)) - OWN | {"planted_one", "pip", "sitecustomize"}
    assert {"stack_data", "jedi", "pexpect", "numexpr", "mlflow", "pandas"} <= names
    plant = f"""
        for name in {sorted(names)!r}:
            trace = os.path.abspath('ran-' + name)
            with open(name + '.py', 'w') as file:
                file.write(f"open({{trace!r}}, 'w').close()\\nraise ImportError({{name!r}})\\n")
        os.symlink('/dev/zero', 'z.ipynb')
        print('planted', os.path.isfile('jedi.py'))
    """
    assert "planted True" in desk.run(kernel, textwrap.dedent(plant))
    victim = bobs.kernel()
    _use(bobs, victim, CELLS + PROCESSES)
    assert "ended-42" in bobs.type("python -m pip --version; python -c 'import pandas'")
    assert traces(workspace) == []

    # A link to a device where a branch belongs keeps neither the server nor other branches.
    saved = bobs.call("PUT", "contents/base.ipynb", json=notebook_of("1"))
    assert saved.is_success, saved.text
    file = wait_for(lambda: bob.file("base.ipynb"), "the version of Bob's save")
    branch = f"/projects/vision/notebook-files/{file['id']}/branch"
    for path in ("z.ipynb", "branched.ipynb"):
        bob.api.post(branch, json={"path": path, "version": 1}).raise_for_status()
    wait_for((workspace / "branched.ipynb").is_file, "the branch in the workspace")
    refused = bob.api.post(branch, json={"path": "personal/x.ipynb", "version": 1})
    assert refused.json()["code"] == "reserved_name"
    assert "2" in bobs.run(victim, "1 + 1")
    bob.stop(server)


def _use(desk: OpenDesk, kernel: str, cells: tuple[str, ...]) -> None:
    """Complete, inspect, debug and run cells, as people and JupyterLab do all day."""
    desk.run(kernel, "pass")
    questions: list[tuple[str, dict[str, Any], str]] = [
        ("complete_request", {"code": code, "cursor_pos": len(code)}, "shell")
        for code in COMPLETIONS
    ]
    for code in INSPECTED:
        content = {"code": code, "cursor_pos": len(code), "detail_level": 1}
        questions.append(("inspect_request", content, "shell"))
    debug = {"seq": 1, "type": "request", "command": "initialize", "arguments": {}}
    questions.append(("debug_request", debug, "control"))
    with desk.connect(kernel) as channel:
        for kind, content, where in questions:
            _ask(channel, kind, content, where)
        for code in cells:
            run_cell(channel, code, within_s=180)


def _ask(channel: ClientConnection, kind: str, content: dict[str, Any], where: str) -> None:
    header = {"msg_id": kind, "msg_type": kind, "session": "s", "version": "5.3"}
    header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    channel.send(json.dumps(message | {"channel": where, "buffers": []}))
    reply = kind.replace("request", "reply")
    while json.loads(channel.recv(timeout=90))["msg_type"] != reply:
        pass


def test_a_personal_folder_is_nobody_elses(bob: Person, doras: tuple[OpenDesk, str]) -> None:
    desk, kernel = doras
    server = bob.ready("personal")
    bobs = bob.open(server)
    own_kernel = bobs.kernel()
    place = "import os; print(os.environ['HOME'], os.environ['SLIPWAY_PERSONAL_DIR'])"
    home, personal = bobs.run(own_kernel, place).split()[-2:]
    assert home == personal
    variables = ("IPYTHONDIR", "VIRTUAL_ENV", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")
    values = bobs.run(own_kernel, f"print(*[os.environ[one] for one in {variables}], sep='|')")
    workspace = bobs.run(own_kernel, "print(os.environ['SLIPWAY_PERSISTENT_DIR'])").split()[-1]
    for value in values.strip().split("|"):
        assert not Path(value).is_relative_to(workspace), value
    bobs.run(own_kernel, "open(os.path.expanduser('~/secret.txt'), 'w').write('of Bob')")
    # Bob sees it in the file browser. What lies beside it is the project's.
    listed = bobs.call("GET", "contents/personal").json()["content"]
    assert "secret.txt" in {file["name"] for file in listed}
    assert bobs.call("GET", "contents/personal/secret.txt").json()["content"] == "of Bob"
    # Dora sees a folder of her own there, and reaches Bob's by no path and no link.
    assert "secret.txt" not in desk.call("GET", "contents/personal").text
    probe = textwrap.dedent(f"""
        import os
        def tried(path):
            try:
                return str(os.listdir(path))
            except OSError as error:
                return type(error).__name__
        print(tried({personal!r}), tried(os.path.dirname({personal!r})))
    """)
    assert "secret.txt" not in desk.run(kernel, probe)
    desk.run(kernel, f"os.path.islink('leak') or os.symlink({personal!r}, 'leak')")
    assert not desk.call("GET", "contents/leak/secret.txt").is_success
    bob.stop(server)


@pytest.mark.thorough
def test_links_in_the_shared_folder_do_not_lead_into_the_personal_one(
    bob: Person, doras: tuple[OpenDesk, str]
) -> None:
    desk, kernel = doras
    server = bob.ready("links")
    bobs = bob.open(server)
    home = bobs.run(bobs.kernel(), "import os; print(os.environ['HOME'])").split()[-1]
    desk.run(
        kernel,
        f"os.symlink({home!r} + '/.bashrc', 'notes.txt'); os.mkdir('trap');"
        f"os.symlink({home!r}, 'trap/.ipynb_checkpoints'); open('trap/a.py', 'w').write('1')",
    )
    text = {"type": "file", "format": "text", "content": "touch /tmp/owned"}
    assert bobs.call("PUT", "contents/notes.txt", json=text).status_code == 403
    # Saving makes no checkpoint where a link leads into the folder of the person.
    bobs.call("PUT", "contents/trap/a.py", json=text)
    bobs.call("POST", "contents/trap/a.py/checkpoints")
    listed = bobs.run(bobs.kernel(), "import os; print(os.listdir(os.path.expanduser('~')))")
    assert "a-checkpoint.py" not in listed
    assert ".bashrc" not in listed
    bob.stop(server)


@pytest.mark.thorough
def test_a_colleague_who_opens_a_running_server_is_refused(
    bob: Person, dora: Person, doras: tuple[OpenDesk, str]
) -> None:
    server = bob.ready("visited")
    bobs = bob.open(server)
    kernel = bobs.kernel()
    for path in ("lab", "api/contents", "api/kernels", "api/terminals", "files/a.txt"):
        assert dora.browser.get(f"{bobs.base}/{path}").status_code == 403, path
    assert dora.browser.get(f"{bobs.base}/lab/api/settings").status_code in (403, 404)
    made = dora.browser.post(f"{bobs.base}/api/terminals")
    assert made.status_code == 403
    desk, own = doras
    with suppress(InvalidStatus):
        # With the cookies of her own server.
        OpenDesk(dora, bobs.base, bobs.page).run(kernel, "1")
        raise AssertionError("Dora ran a cell in Bob's kernel")
    token = desk.run(own, "print(os.environ['JUPYTERHUB_API_TOKEN'])").split()[-1]
    hers = {"Authorization": f"token {token}"}
    assert httpx.get(f"{bobs.base}/api/contents", headers=hers).status_code == 403
    assert dora.api.post(f"{SERVERS}/{server}/key").status_code == 403
    assert dora.api.post(f"{SERVERS}/{server}/start").status_code == 403
    bob.stop(server)
