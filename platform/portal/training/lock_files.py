"""Lock files of uv and Poetry as lines of requirements: exact versions with their hashes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, default_environment
from packaging.utils import canonicalize_name

# Nodes are Linux. A package that only one kind of processor needs gets a marker.
_MACHINES = ("x86_64", "aarch64")
_TAG = re.compile(r"-([^-]+)-[^-]+-([^-]+)\.whl$")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
Document = Mapping[str, Any]


class LockUnreadable(ValueError):
    """The lock has another form than those of uv and Poetry."""


def uv_requirements(lock: Document, python: str) -> list[str]:
    """Return what the project of a `uv.lock` needs at run time, one line a package.

    Groups for development and extras that nothing asks for are left out. Raises LockUnreadable.
    """
    packages = _tables(lock.get("package"))
    roots = [package for package in packages if _is_root(package)]
    if not roots:
        raise LockUnreadable("it has no package of the project itself")
    by_name: dict[str, list[Document]] = {}
    for package in packages:
        by_name.setdefault(canonicalize_name(_text(package, "name")), []).append(package)
    lines: dict[str, set[str]] = {}
    for machine in _MACHINES:
        environment = _environment(python, machine)
        for package in _reached(roots, by_name, environment):
            lines.setdefault(_uv_line(package, python), set()).add(machine)
    return _with_machines(lines)


def poetry_requirements(lock: Document, project: Document, python: str) -> list[str]:
    """Return the main packages of a `poetry.lock`, one line a package. Raises LockUnreadable.

    Locks of Poetry 2 say which packages these are; for older ones it follows from `project`, the
    pyproject.toml beside the lock.
    """
    packages = _tables(lock.get("package"))
    lines: dict[str, set[str]] = {}
    for machine in _MACHINES:
        environment = _environment(python, machine)
        for package in _poetry_packages(packages, project, environment):
            lines.setdefault(_poetry_line(package, python), set()).add(machine)
    return _with_machines(lines)


def _is_root(package: Document) -> bool:
    source = package.get("source")
    return isinstance(source, Mapping) and (
        source.get("virtual") == "."
        or source.get("editable") == "."
        or source.get("directory") == "."
    )


def _reached(
    roots: list[Document], by_name: Mapping[str, list[Document]], environment: dict[str, str]
) -> Iterator[Document]:
    """Yield the packages that the roots need in an environment, without the roots."""
    pending: list[tuple[Document, tuple[str, ...]]] = [(root, ()) for root in roots]
    done: set[tuple[int, tuple[str, ...]]] = set()
    yielded: set[int] = set()
    while pending:
        package, extras = pending.pop()
        if (id(package), extras) in done:
            continue
        done.add((id(package), extras))
        if not _is_root(package) and id(package) not in yielded:
            yielded.add(id(package))
            yield package
        optional = package.get("optional-dependencies", {})
        needs = [*_tables(package.get("dependencies"))]
        for extra in extras:
            needs += _tables(optional.get(extra))
        for need in needs:
            if _applies(need.get("marker"), environment):
                target = _locked(need, by_name, environment)
                pending.append((target, tuple(sorted(map(str, need.get("extra", ()))))))


def _locked(
    need: Document, by_name: Mapping[str, list[Document]], environment: dict[str, str]
) -> Document:
    """Return the locked package for a dependency: of several, the one for this environment."""
    name = canonicalize_name(_text(need, "name"))
    choices = by_name.get(name, [])
    version = need.get("version")
    if version is not None:
        choices = [package for package in choices if package.get("version") == version]
    for package in choices:
        markers = package.get("resolution-markers", ())
        if not markers or any(_applies(marker, environment) for marker in markers):
            return package
    raise LockUnreadable(f"it needs {name} and does not lock it")


def _uv_line(package: Document, python: str) -> str:
    name, source = _text(package, "name"), package.get("source", {})
    if "registry" in source:
        files = [*_tables(package.get("wheels"))]
        sdist = package.get("sdist")
        hashes = [*_hashes(files, python), *_hashes([sdist] if sdist else [], python)]
        return f"{name}=={_text(package, 'version')}{_hash_options(hashes)}"
    if "git" in source:
        address, _, commit = str(source["git"]).partition("#")
        return f"{name} @ git+{address.partition('?')[0]}@{commit}"
    if "url" in source:
        files = [*_tables(package.get("wheels")), *_tables([package.get("sdist") or {}])]
        return f"{name} @ {source['url']}{_hash_options(_hashes(files, python))}"
    raise LockUnreadable(f"{name} is a folder beside the project, which a node does not build")


def _poetry_packages(
    packages: list[Document], project: Document, environment: dict[str, str]
) -> Iterator[Document]:
    if all("groups" in package for package in packages):
        for package in packages:
            marker = package.get("markers")
            marker = marker.get("main") if isinstance(marker, Mapping) else marker
            is_main = "main" in package["groups"] and not package.get("optional")
            if is_main and _applies(marker, environment):
                yield package
        return
    by_name = {canonicalize_name(_text(package, "name")): package for package in packages}
    tool = project.get("tool", {}).get("poetry", {}).get("dependencies", {})
    named = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in _project_lines(project)]
    pending = [name for name in [*tool, *named] if name.lower() != "python"]
    done: set[str] = set()
    while pending:
        name = canonicalize_name(pending.pop())
        if name in done or name not in by_name:
            continue
        done.add(name)
        yield by_name[name]
        for need, details in by_name[name].get("dependencies", {}).items():
            tables = details if isinstance(details, list) else [details]
            if any(_is_needed(table, environment) for table in tables):
                pending.append(need)


def _project_lines(project: Document) -> list[str]:
    return [str(line) for line in project.get("project", {}).get("dependencies", ())]


def _is_needed(details: Any, environment: dict[str, str]) -> bool:
    if not isinstance(details, Mapping):
        return True
    return not details.get("optional") and _applies(details.get("markers"), environment)


def _poetry_line(package: Document, python: str) -> str:
    name, source = _text(package, "name"), package.get("source", {})
    kind = source.get("type", "legacy")
    if kind == "git":
        return f"{name} @ git+{source.get('url')}@{source.get('resolved_reference')}"
    if kind == "url":
        return f"{name} @ {source.get('url')}"
    if kind not in ("legacy", "pypi"):
        raise LockUnreadable(f"{name} is a {kind} beside the project, which a node does not build")
    hashes = _hashes(_tables(package.get("files")), python)
    return f"{name}=={_text(package, 'version')}{_hash_options(hashes)}"


def _hashes(files: Iterable[Document], python: str) -> list[str]:
    """Return the hashes of files that a Linux node with this Python may install."""
    hashes = []
    for file in files:
        value = str(file.get("hash", ""))
        address = str(file.get("url") or file.get("file") or "")
        name = unquote(urlsplit(address).path).rpartition("/")[2]
        if _SHA256.fullmatch(value) and _may_install(name, python):
            hashes.append(value)
    return hashes


def _may_install(name: str, python: str) -> bool:
    match = _TAG.search(name)
    if match is None:
        return True  # a source archive, or an address without a name
    own_tag = f"cp{python.replace('.', '')}"
    pythons, platforms = match[1].split("."), match[2].split(".")
    fits = any(tag == own_tag or tag.startswith("py") or "-abi3-" in name for tag in pythons)
    return fits and any(tag == "any" or "linux" in tag for tag in platforms)


def _hash_options(hashes: Iterable[str]) -> str:
    return "".join(f" --hash={value}" for value in sorted(set(hashes)))


def _with_machines(lines: Mapping[str, set[str]]) -> list[str]:
    result = []
    for line, machines in lines.items():
        text, _, hashes = line.partition(" --hash=")
        marker = (
            "" if len(machines) == len(_MACHINES) else f" ; platform_machine == '{min(machines)}'"
        )
        result.append(f"{text}{marker}{f' --hash={hashes}' if hashes else ''}")
    return result


def _environment(python: str, machine: str) -> dict[str, str]:
    values = {name: str(value) for name, value in default_environment().items()}
    return values | {
        "python_version": python,
        "python_full_version": f"{python}.99",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }


def _applies(marker: Any, environment: dict[str, str]) -> bool:
    if not marker:
        return True
    try:
        return Marker(str(marker)).evaluate(environment)
    except InvalidMarker as error:
        raise LockUnreadable(f"the marker {str(marker)[:100]!r} is not valid") from error


def _tables(value: Any) -> list[Document]:
    tables = value if isinstance(value, list) else []
    return [table for table in tables if isinstance(table, Mapping)]


def _text(table: Document, name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise LockUnreadable(f"a package has no {name}")
    return value
