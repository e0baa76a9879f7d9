"""What the SDK promises: its names, its errors, and that it stays light."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import portal.core.errors
import slipway
from slipway import errors

ROOT = Path(__file__).resolve().parents[2]


def test_the_public_names_are_these() -> None:
    assert slipway.__all__ == [
        "Client",
        "Endpoint",
        "Model",
        "Pages",
        "Retries",
        "SlipwayError",
        "__version__",
        "dataset",
        "errors",
        "job",
        "optuna_storage",
        "pipeline",
        "pipelines",
        "register",
        "run_pipeline",
        "step",
        "step_input",
        "step_output",
        "track",
        "train",
    ]
    assert set(slipway.__all__) <= set(dir(slipway))
    assert all(hasattr(slipway, name) for name in slipway.__all__)


def test_a_client_is_made_of_these_parts() -> None:
    with slipway.Client("http://localhost:1", "slp_x") as client:
        public = [name for name in dir(client) if not name.startswith("_")]
    assert public == [
        "audit",
        "batch_predictions",
        "budgets",
        "close",
        "datasets",
        "endpoints",
        "environments",
        "experiments",
        "invitations",
        "jobs",
        "members",
        "models",
        "node_groups",
        "nodes",
        "notebook_files",
        "notebooks",
        "notes",
        "notifications",
        "optuna",
        "pipelines",
        "pools",
        "projects",
        "reports",
        "runs",
        "schedules",
        "secrets",
        "service_accounts",
        "snapshots",
        "spend",
        "sweeps",
        "teams",
        "tiers",
        "tokens",
        "url",
        "users",
        "whoami",
        "workloads",
        "workspaces",
    ]
    parameters = inspect.signature(slipway.Client).parameters
    assert list(parameters) == ["url", "token", "timeout_s", "retries", "transport"]


def test_the_errors_mirror_those_of_the_portal() -> None:
    theirs = {
        name
        for name, kind in vars(portal.core.errors).items()
        if isinstance(kind, type) and issubclass(kind, portal.core.errors.SlipwayError)
    }
    ours = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.SlipwayError)
    }
    assert ours - theirs == {"ConnectionFailed", "NotLoggedIn", "ServerError", "UnexpectedAnswer"}
    assert theirs <= ours
    assert all(name in (errors.__doc__ or "") for name in ours)


def test_an_error_of_the_portal_arrives_with_the_same_code_and_title() -> None:
    for name in ("InvalidInput", "Forbidden", "NotFound", "Conflict", "TooLarge", "RateLimited"):
        assert getattr(errors, name).default_code == getattr(portal.core.errors, name).default_code
        assert getattr(errors, name).title == getattr(portal.core.errors, name).title


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'clinet'"):
        slipway.clinet  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_sdk_pulls_in_no_heavy_library() -> None:
    script = (
        "import sys, slipway; slipway.Client; slipway.train; "
        "print(sorted({'django', 'torch', 'numpy', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "platform",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
