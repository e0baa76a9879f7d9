"""The reference holds everything there is, and its links lead somewhere."""

import re

import pytest

import slipway
from portal.api.root import api
from portal.config.env import Env, variable_of
from scripts import reference
from tests.docs.pages import anchors_of, links_of

pytestmark = pytest.mark.torch


def test_every_command_stands_in_the_reference() -> None:
    page = reference.cli_page()
    names = [name for name, _ in reference.commands()]
    assert len(names) > 80
    assert not [name for name in names if f"\n## {name}\n" not in page]
    assert "`--watch, -w`" in page


def test_every_public_name_of_the_sdk_stands_in_the_reference() -> None:
    page = reference.sdk_page()
    named = [name for name in slipway.__all__ if name not in ("__version__", "errors")]
    assert not [name for name in named if f"\n## slipway.{name}\n" not in page]
    assert "client.jobs.wait(" in page
    assert "`slipway.errors.NotFound`" in page
    assert "slipway.schemas." not in page


@pytest.mark.thorough
def test_every_operation_stands_in_the_reference_and_its_types_are_found() -> None:
    page = reference.rest_page()
    paths = api.get_openapi_schema()["paths"]
    headings = [f"## {verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs]
    assert not [heading for heading in headings if f"{heading}\n" not in page]
    anchors = anchors_of(page)
    lost = {link for link in links_of(page) if link.startswith("#") and link[1:] not in anchors}
    assert not lost


def test_every_setting_stands_in_the_reference() -> None:
    page = reference.settings_page()
    variables = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", page, re.MULTILINE))
    assert variables == {variable_of(name) for name in Env.model_fields}
