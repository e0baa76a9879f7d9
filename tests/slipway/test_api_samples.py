"""Samples of the API reference, sent by curl to a running portal."""

import re
import secrets
import subprocess
from collections.abc import Mapping

import httpx
import pytest
from pytest_django import Settings

from portal.api.root import api
from portal.web.docs.api_samples import samples_of
from tests.live import LivePortal

SCHEMA = api.get_openapi_schema()
# They read runs, a job's machines or a folder on a node, which a new project has not.
_NEED_OBJECTS = (
    *("/runs/compare", "/runs/curves", "/lineage"),
    *("/workspace-files", "/workspace-files/content"),
)


def _readable(samples: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the curl samples that need nothing but a project."""
    return [
        texts["curl"]
        for operation, texts in samples.items()
        if operation.startswith("GET ")
        and set(re.findall(r"\{(\w+)\}", operation)) <= {"project"}
        and not operation.endswith(_NEED_OBJECTS)
    ]


def test_curl_samples_read_what_a_new_project_has(
    portal: LivePortal, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings.SLIPWAY_URL = portal.url
    slug = f"samples-{secrets.token_hex(4)}"
    root = {"Authorization": f"Bearer {portal.tokens['root']}"}
    made = httpx.post(f"{portal.url}/api/v1/projects", json={"name": slug}, headers=root)
    assert made.status_code == 201, made.text
    samples = _readable(samples_of(SCHEMA, slug))
    assert len(samples) > 35
    script = "\n".join(f"{sample} > /dev/null || echo FAILED" for sample in samples)
    done = subprocess.run(
        ["bash", "-xc", script],
        env={"PATH": "/usr/bin:/bin", "SLIPWAY_TOKEN": portal.tokens["root"]},
        cwd=tmp_path_factory.mktemp("curl"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "FAILED" not in done.stdout, done.stderr
