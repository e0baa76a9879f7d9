"""Imports point down and stand at the top: no import inside a function, no cycle anywhere."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from tests.house.sources import modules

PACKAGES = ("portal", "slipway", "workers", "notebooks_service")
_LOADERS = frozenset(
    {
        "__import__",
        "import_module",
        "import_string",
        "spec_from_file_location",
        "exec_module",
        "load_module",
        "run_module",
        "run_path",
    }
)
# The places that may load a module by name, and why.
LOADERS_ALLOWED = {
    "platform/portal/compute/adapters/engines/kubernetes/kind.py": "the portal starts without it",
    "platform/portal/compute/adapters/provisioners/docker_engine/kind.py": (
        "the portal starts without it"
    ),
    "platform/portal/compute/adapters/provisioners/ec2/kind.py": "the portal starts without it",
    "platform/portal/config/apps.py": "an app's wiring is imported once all models are loaded",
    "platform/portal/config/schedule.py": "an app's tasks are imported like its wiring",
    "platform/portal/config/commands.py": "the supervisor runs for months and needs no Django",
    "platform/portal/monitoring/adapters/parquet.py": "the portal starts without DuckDB",
    "platform/portal/sweeps/factories.py": "only the control worker imports Optuna",
    "platform/portal/web/experiments/views/importance.py": "the portal starts without numpy",
    "bench/drift.py": "the peer has an environment of its own",
    "bench/readers.py": "the peers have an environment of their own",
    "platform/slipway/__init__.py": "a rank that reports a step needs neither HTTP nor schemas",
    "platform/slipway/datasets.py": "a script that reads files by their path needs no pyarrow",
    "platform/slipway/studies.py": "Optuna is for whoever has it installed, and slow to import",
    "platform/slipway/ray.py": "Ray is for whoever has it installed",
    "platform/slipway/resources/monitoring.py": "only a file of labels needs pyarrow",
    "platform/slipway/track.py": "MLflow is for whoever has it installed, and slow to import",
    "platform/slipway/mlflow_plugin.py": "MLflow is for whoever has it installed",
    "platform/slipway/mlflow_inputs.py": "it changes the MLflow that the script has loaded",
    "platform/slipway/mlflow_golden.py": "it asks the MLflow that the script has loaded",
    "workers/launcher/program.py": "only a job with a framework forms a cluster",
    "workers/launcher/in_jobs/slipway_in_jobs.py": "the SDK may be missing, or too new a Python",
    "examples/digits/search.py": "outside a job it runs without MLflow",
    "examples/digits/train.py": "outside a job it runs without MLflow",
    "examples/digits/tune.py": "outside a job it runs without MLflow",
    "examples/digits/flow.py": "who starts a run reads it and may have no scikit-learn",
    "examples/flows/kubeflow/flow.py": "who starts a run reads it and may have no scikit-learn",
    "examples/flows/kubeflow/kubeflow_flow.py": "Kubeflow sends the source of the function alone",
    "examples/flows/metaflow/flow.py": "who starts a run reads it and may have no scikit-learn",
    "examples/flows/metaflow/metaflow_flow.py": "as Metaflow's own tutorials import in steps",
    "examples/tabular/train.py": "outside a job it runs without MLflow and Slipway",
    "examples/text/train.py": "outside a job it runs without MLflow and Slipway",
    "platform/slipway/notebook_job.py": "a job's own environment may lack papermill, told in words",
    "platform/slipway/cli/notebook_files.py": "papermill and nbdime are for whoever installed them",
    "platform/slipway/cli/shell.py": "Windows has no terminals of this kind",
    "platform/slipway/cli/lazy.py": "a command starts without the nouns that were not typed",
    "platform/slipway/pipeline_files.py": "a pipeline in Python is a file of the caller",
    "platform/slipway/step_job.py": "a step is a function of the code of its job",
    "workers/control/__main__.py": "the settings are checked before anything reads them",
    "workers/model_server/formats/__init__.py": "a replica loads what its model's format needs",
    "workers/launcher/warm.py": "a warm process loads what the task's environment happens to have",
}


def hidden_imports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each import that does not stand at the top of its file."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    yield inner.lineno, ast.unparse(inner)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _LOADERS:
                yield node.lineno, ast.unparse(node)


def test_no_permission_to_load_by_name_is_left_over() -> None:
    assert not [name for name in LOADERS_ALLOWED if not list(hidden_imports(modules()[name]))]


def test_every_import_stands_at_the_top_of_its_file() -> None:
    faults = [
        f"{name}:{line} {what}"
        for name, module in modules().items()
        if name not in LOADERS_ALLOWED and not name.startswith("tests/")
        for line, what in hidden_imports(module)
    ]
    assert not faults, f"it hides who knows whom: {faults}"


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import portal.core",
        "async def f():\n    from portal import core  # noqa: PLC0415",
        "import importlib\ncore = importlib.import_module('portal.core')",
        "core = __import__('portal.core')",
        "class A:\n    def f(self):\n        if self:\n            import portal",
    ],
)
def test_an_import_that_hides_is_found(source: str) -> None:
    assert list(hidden_imports(ast.parse(source)))


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return one import cycle of a graph, empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    built = grimp.build_graph(*PACKAGES, cache_dir=None)
    graph = {
        module: set(built.find_modules_directly_imported_by(module)) for module in built.modules
    }
    assert len(graph) > 50, "the graph is too small to be the house"
    assert not cycle_in(graph)


def test_a_circle_of_imports_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
