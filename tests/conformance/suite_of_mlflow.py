"""A pytest plug-in for MLflow's own test suite: it talks to Slipway instead of servers of its own.

Loaded with `-p suite_of_mlflow` in a checkout of MLflow. Each server that a test starts becomes a
fresh project, and every request to it carries the token that an MLflow client would take from the
environment.
"""

import os
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

URL = os.environ["SLIPWAY_SUITE_URL"]
TOKEN = os.environ["MLFLOW_TRACKING_TOKEN"]
_EXCLUDED = tomllib.loads(Path(__file__).with_name("excluded.toml").read_text())


def fresh_project() -> str:
    """Make a project; returns its tracking URI."""
    answer = httpx.post(
        f"{URL}/api/v1/projects",
        json={"name": f"suite {uuid.uuid4().hex[:12]}"},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
    )
    answer.raise_for_status()
    return f"{URL}/mlflow/{answer.json()['slug']}"


class ProjectInsteadOfServer:
    """Stands for the suite's ServerThread."""

    def __init__(self, *_given: object) -> None:
        self.url = fresh_project()

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *_why: object) -> None:
        """Nothing was started."""


@contextmanager
def project_instead_of_server(*_given: object, **_named: object) -> Iterator[str]:
    """Stand for the suite's _init_server."""
    yield fresh_project()


def _with_token(send: Any) -> Any:
    def request(self: requests.Session, method: str, url: str, **given: Any) -> Any:
        if str(url).startswith(URL):
            headers = dict(given.get("headers") or {})
            headers.setdefault("Authorization", f"Bearer {TOKEN}")
            given["headers"] = headers
        return send(self, method, url, **given)

    return request


def pytest_configure() -> None:
    """Replace the servers before the suite's modules import them."""
    requests.Session.request = _with_token(requests.Session.request)  # type: ignore[method-assign]
    theirs: Any = __import__("tests.tracking.integration_test_utils", fromlist=["ServerThread"])
    theirs.ServerThread = ProjectInsteadOfServer
    theirs._init_server = project_instead_of_server


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Expect exactly what the list excludes to fail, so that one which passes is noticed too."""
    for item in items:
        name = item.name.partition("[")[0]
        for why, names in _EXCLUDED.items():
            if name in names["tests"] or item.name in names["tests"]:
                strict = names.get("strict", True)
                reason = f"{why}: {names['why']}"
                item.add_marker(pytest.mark.xfail(reason=reason, strict=strict))
