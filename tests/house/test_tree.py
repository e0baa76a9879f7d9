"""The shape of the tree: what stands where, how large it may grow, what it must not hold."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.house.sources import PYTHON_ROOTS, ROOT, files, functions, modules, shown, texts

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
SIZED = (".py", ".js", ".css", ".html", ".sh")
SOURCE_ROOTS = ("platform/", "workers/", "notebooks_service/")
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})
_GENERATED = re.compile(r"\.(min\.(js|css)|map|bundle\.js|woff2?|ttf)\Z")
_TEST_FILE = re.compile(r"(\A|/)(test_[^/]*|[^/]*_test|conftest)\.py\Z|(\A|/)tests?/")
# Spelled in pieces, so that this file is not its own first finding.
_REGISTRY = re.compile(
    "|".join(
        (
            "py" + r"pi\.org",
            "python" + r"hosted\.org",
            "npm" + r"js\.(org|com)",
            "(?<!no-emit-)(?<!no-)(extra-)?" + "index" + r"[-_]url\b",
            "(?<!no-emit-)" + "trusted" + "-host",
            "(?<!no-emit-)" + "find" + "-links",
            r"https?://[^\s\"'/]*(artif" + "actory|nexus|devpi|verdaccio)",
            r"https?://[^\s\"']*/sim" + r"ple/?\b",
            r"https?://(10|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d",
        )
    )
)
# They hand on what pip is told on a machine, by the names of its options.
PIP_OPTIONS_ALLOWED = {
    # The options that requirements may contain, and what is written about them.
    "CHANGELOG.md",
    "docs/operating.md",
    "docs/training.md",
    "platform/portal/compute/services/default_environment.py",
    "platform/portal/compute/services/environments.py",
    "platform/portal/training/archive_sources.py",
    "platform/slipway/requirement_files/lines.py",
    "platform/slipway/requirement_files/local_archives.py",
    "tests/integration/docker/test_docker_backend.py",
    "tests/integration/serving/test_package_archives.py",
    "tests/portal/registry/test_job_archives.py",
    "tests/portal/training/test_environment_folders.py",
    "tests/portal/training/test_package_archives.py",
    "tests/portal/training/test_requirements.py",
    "tests/slipway/test_requirement_files.py",
    "tests/workers/node_agent/test_package_archives.py",
    "workers/node_agent/requirement_lines.py",
    "workers/node_agent/uv_install.py",
    "workers/node_agent/index_hosts.py",
    "tests/workers/node_agent/test_index_hosts.py",
    "tests/workers/node_agent/test_uv_install.py",
}
_MACHINE_PATH = re.compile(
    r"(?<![\w.}<:/-])/(" + "work|home|root|Users" + r")/[\w.-]+|\b[A-Z]:\\" + r"\\?Users\b"
)
# A path from a machine that is an example in running text, with the reason it may stay.
MACHINE_PATHS_ALLOWED: dict[str, str] = {}


def test_platform_never_shadows_the_standard_module() -> None:
    platform = ROOT / "platform"
    assert not (platform / "__init__.py").exists(), "platform/ is a source root, not a package"
    loose = sorted(path.name for path in platform.glob("*.py*"))
    assert not loose, f"loose modules in platform/: {loose}"


def test_tests_live_under_tests_alone() -> None:
    strays = [name for name in texts() if name.startswith(SOURCE_ROOTS) and _TEST_FILE.search(name)]
    assert not strays


_IMPORT = "import platform, sys; sys.stdout.write(platform.__file__ + ' ' + platform.system())"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["-c", _IMPORT], id="both source roots on the path"),
        pytest.param(["manage.py", "shell", "--no-imports", "-v0", "-c", _IMPORT], id="manage.py"),
        pytest.param(["-m", "celery", "report"], id="celery"),
    ],
)
def test_platform_is_the_standard_library_in_every_process(
    command: list[str], tmp_path: Path
) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
        "SLIPWAY_DATA_DIR": str(tmp_path),
        "SLIPWAY_ENV_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "celery" in command:
        assert "software -> celery:" in done.stdout
    else:
        assert done.stdout.startswith(sysconfig.get_path("stdlib")), done.stdout


def test_every_python_file_is_in_a_known_root() -> None:
    allowed = tuple(f"{root}/" for root in PYTHON_ROOTS)
    strays = [name for name in modules() if not name.startswith(allowed) and name != "manage.py"]
    assert not strays


def test_files_stay_small_enough_to_read() -> None:
    long = {
        name: lines
        for name, text in texts().items()
        if name.endswith(SIZED)
        and "/migrations/" not in name
        and (lines := text.count("\n") + 1) > MAX_FILE_LINES + 1
    }
    assert not long, f"over {MAX_FILE_LINES} lines; split by noun: {long}"


def test_functions_stay_small_enough_to_read() -> None:
    long = {
        f"{name}:{function.lineno} {function.name}": lines
        for name, module in modules().items()
        for function in functions(module)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long, f"over {MAX_FUNCTION_LINES} lines: {long}"


def test_modules_are_named_after_what_they_hold() -> None:
    vague = [name for name in modules() if Path(name).stem in VAGUE_NAMES]
    assert not vague, f"say what is inside: {vague}"


def test_no_generated_or_vendored_front_end_code() -> None:
    vendored = [shown(path) for path in files() if _GENERATED.search(path.name)]
    assert not vendored, "take it from npm instead"
    endless = [
        name
        for name, text in texts().items()
        if name.endswith((".js", ".css", ".html", ".py"))
        and max(map(len, text.splitlines()), default=0) > 1_000
    ]
    assert not endless, "lines that long were written by a program"


def test_nothing_names_a_package_registry() -> None:
    places = [
        place
        for place in _matches(_REGISTRY)
        if place.split(":")[0] not in PIP_OPTIONS_ALLOWED or "://" in place
    ]
    assert not places, f"where packages come from is the machine's own setting: {places}"


def test_nothing_names_a_path_of_one_machine() -> None:
    places = [
        place
        for place in _matches(_MACHINE_PATH)
        if place.split(":")[0] not in MACHINE_PATHS_ALLOWED
    ]
    assert not places


def _matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number} {match.group()}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := pattern.search(line))
    ]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (_REGISTRY, "--extra-" + "index" + "-url https://example.org"),
        (_REGISTRY, '"resolved": "https://registry.np' + 'mjs.org/x"'),
        (_REGISTRY, "http://" + "10.0.0.7:3141/root"),
        (_MACHINE_PATH, 'open("/ho' + 'me/ada/notes")'),
    ],
)
def test_the_searches_find_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_every_test_has_a_name_that_says_what_is_true() -> None:
    short = [
        f"{name}:{function.lineno} {function.name}"
        for name, module in modules().items()
        if name.startswith("tests/")
        for function in functions(module)
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]
    assert not short, f"a test's name is a sentence: {short}"


def test_every_module_of_the_product_says_what_it_is_for() -> None:
    silent = [
        name
        for name, module in modules().items()
        if name.startswith(SOURCE_ROOTS)
        and not name.endswith("/__init__.py")
        and ast.get_docstring(module) is None
    ]
    assert not silent
