"""New kinds of workload register everything, and kinds are listed nowhere else.

The recipe is in docs/architecture/workloads.md. A forgotten line of it fails here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

import workers
from portal.workloads.ports import registered_kinds
from slipway.cli.lazy import NOUNS, VERBS
from tests.house.sources import ROOT, modules, texts
from workers.launcher.platform_programs import READABLE_PACKAGES

_API_FOLDERS = ("platform/portal/api/v1", "platform/portal/api/notebooks")
_RESOURCES = "platform/slipway/resources"
_COMMANDS = "platform/slipway/cli"
_PORTAL = "platform/portal"
# Code that depends on the kind of another app's workload, and why.
ALLOWED_KINDS = {
    ("platform/portal/notebooks/file_gates.py", "job"): "a notebook runs as a job, which reports",
}
_LOOKUPS = frozenset({"filter", "exclude", "get", "Q"})
_TEMPLATE = re.compile(r"\b(?:workload\.)?kind(?:\.name)? *[!=]= *[\"'](\w+)[\"']")


def _below(folder: str) -> dict[str, ast.Module]:
    """Return the modules of a folder by their names, without subfolders."""
    return {
        Path(path).stem: tree
        for path, tree in modules().items()
        if Path(path).parent.as_posix() == folder
    }


def _assigns(tree: ast.Module, name: str) -> bool:
    targets = (node.targets[0] for node in tree.body if isinstance(node, ast.Assign))
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _imports(tree: ast.Module) -> set[str]:
    """Return the modules that a module imports, also those named after `from package import`."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("folder", _API_FOLDERS)
def test_each_router_belongs_to_the_api(folder: str) -> None:
    package = folder.removeprefix("platform/").replace("/", ".")
    root = _imports(modules()["platform/portal/api/root.py"])
    routers = [name for name, tree in _below(folder).items() if _assigns(tree, "router")]
    assert routers
    assert not [name for name in routers if f"{package}.{name}" not in root], "add it to api/root"


def test_each_resource_belongs_to_the_client() -> None:
    resources = _below(_RESOURCES)
    users = [modules()["platform/slipway/client.py"], *resources.values()]
    imported = set().union(*map(_imports, users))
    missing = [
        name
        for name in resources
        if name not in ("__init__", "requests") and f"slipway.resources.{name}" not in imported
    ]
    assert not missing, "add it to slipway/client.py"


def test_each_group_of_commands_belongs_to_the_command_line() -> None:
    commands = _below(_COMMANDS)
    imported = set().union(*map(_imports, commands.values()))
    missing = [
        name
        for name, tree in commands.items()
        if _assigns(tree, "app") and name.replace("_", "-") not in (*NOUNS, *VERBS, "main")
        if f"slipway.cli.{name}" not in imported
    ]
    assert not missing, "add it to NOUNS in slipway/cli/lazy.py"


def test_each_app_is_installed() -> None:
    folders = [path.parent for path in (ROOT / _PORTAL).glob("*/__init__.py")]
    apps = {f"portal.{folder.name}" for folder in folders}
    assert apps == {name for name in settings.INSTALLED_APPS if name.startswith("portal.")}


def test_each_program_that_tasks_start_can_be_read_by_them() -> None:
    folder = Path(workers.__path__[0])
    shared = {"control", "gateway", "node_agent", "relay", "tracking"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")} - shared
    assert packages == set(READABLE_PACKAGES), "name it in an entry of platform_programs.py"


def _owners() -> dict[str, str]:
    """Return the folder of the app that registers each kind."""
    owners: dict[str, str] = {}
    for path, tree in modules().items():
        if not (path.startswith(f"{_PORTAL}/") and path.endswith("/wiring.py")):
            continue
        app = Path(path).parent.as_posix()
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if any(isinstance(call.func, ast.Name) and call.func.id == "Kind" for call in calls):
            owners |= {kind: app for kind in registered_kinds() if _names_kind(app, kind)}
    return owners


def _names_kind(app: str, kind: str) -> bool:
    """Return whether a module of the app says `KIND = kind` or `Kind(name=kind)`."""
    phrases = (f'KIND = "{kind}"\n', f'    name="{kind}",\n')
    sources = (text for path, text in texts().items() if path.startswith(f"{app}/"))
    return any(phrase in text for text in sources for phrase in phrases)


def _kinds_in(tree: ast.Module, kinds: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the kind where code depends on a kind by name, or lists several."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and "kind" in ast.unparse(node):
            yield from _constants(node.lineno, [node.left, *node.comparators], kinds)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _LOOKUPS:
                values = [word.value for word in node.keywords if "kind" in (word.arg or "")]
                yield from _constants(node.lineno, values, kinds)
        elif isinstance(node, ast.List | ast.Set | ast.Tuple | ast.Dict):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            listed = list(_constants(node.lineno, [item for item in items if item], kinds))
            yield from listed if len(listed) > 1 else ()


def _constants(
    line: int, nodes: list[ast.expr], kinds: frozenset[str]
) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Constant) and node.value in kinds:
            yield line, str(node.value)


def test_kinds_of_workload_are_named_only_by_the_apps_that_register_them() -> None:
    owners = _owners()
    assert set(owners) == set(registered_kinds()) >= {"job", "notebook", "replica"}
    faults = [
        f"{path}:{line}: {kind}: add a hook to portal.workloads.ports.Kind"
        for path, tree in modules().items()
        if path.startswith((f"{_PORTAL}/", "workers/"))
        for line, kind in _kinds_in(tree, frozenset(owners))
        if not path.startswith(f"{owners[kind]}/") and (path, kind) not in ALLOWED_KINDS
    ]
    faults += [
        f"{path}: {match[0]}"
        for path, text in texts().items()
        if path.startswith(f"{_PORTAL}/") and path.endswith(".html")
        for match in _TEMPLATE.finditer(text)
        if match[1] in owners and "preview.kind" not in text
    ]
    assert not faults


def test_a_comparison_with_a_kind_is_detected() -> None:
    kinds = frozenset({"job", "notebook"})
    code = (
        'if workload.kind == "job": pass\nrows.filter(kind="notebook")\nALL = ["job", "notebook"]'
    )
    assert sorted(_kinds_in(ast.parse(code), kinds)) == [
        *((1, "job"), (2, "notebook"), (3, "job"), (3, "notebook")),
    ]
    assert not list(_kinds_in(ast.parse('audit.record("x", kind="job")'), kinds))
