"""The documentation in the portal: pages, links between them, search, the reader's own examples."""

import re
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.test import Client
from pytest_django import Settings

from portal.config.setup.client_wheel import build_client_wheel
from portal.web.docs.catalog import files_by_slug, slugs_by_path
from portal.web.docs.client import WHEEL_NAME, wheel_folder
from portal.web.docs.links import linked_slugs
from portal.web.docs.markdown_pages import all_pages, rendered
from tests.docs.pages import pages
from tests.live import ROOT
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


def test_every_page_of_the_documentation_is_served() -> None:
    written = {page for page in pages() if page.startswith("docs/")} - {"docs/README.md"}
    written |= {f"docs/architecture/{path.name}" for path in ROOT.glob("docs/architecture/*.md")}
    assert written <= set(slugs_by_path())
    assert len(all_pages()) == len(files_by_slug())


def test_every_page_that_the_portal_links_to_is_served() -> None:
    assert linked_slugs() <= set(files_by_slug())


def test_links_between_pages_lead_to_their_headings() -> None:
    broken = []
    for page in all_pages():
        anchors = {heading.anchor for heading in page.headings}
        for link in re.findall(r'<a href="([^"]+)"', page.template):
            split = urlsplit(link.replace("qqqueryqq", ""))
            if split.scheme:
                continue
            target = rendered(split.path.removeprefix("/docs/")) if split.path else page
            known = {heading.anchor for heading in target.headings} if target else set()
            if split.path != "/docs" and (
                target is None or (split.fragment and split.fragment not in known)
            ):
                broken.append(f"{page.slug}: {link}")
        assert len(anchors) == len(page.headings) or page.slug == "changelog", page.slug
    assert not broken


def test_links_that_name_a_file_show_the_title_of_the_page() -> None:
    training = rendered("training")
    assert training
    assert ">The slipway command</a>" in training.template
    assert ".md</a>" not in "".join(page.template for page in all_pages())


def test_examples_have_the_address_of_the_portal_and_the_project_of_the_reader(
    people: Personas, browse: Browse, settings: Settings
) -> None:
    settings.SLIPWAY_URL = "https://ml.example.net"
    alice = browse(people.alice)
    page = text_of(alice.get("/docs/mlflow?project=vision"))
    assert "https://ml.example.net/mlflow/vision" in page
    assert "localhost" not in page
    assert 'href="/docs/experiments?project=vision' in html_of(alice.get("/docs/mlflow"))
    foreign = html_of(alice.get("/docs/mlflow?project=other"))
    assert "/mlflow/other" not in foreign
    install = text_of(alice.get("/docs/install"))
    assert f"pip install https://ml.example.net/static/client/{WHEEL_NAME}" in install


def test_search_finds_sections_and_escapes_the_query(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    page = html_of(alice.get("/docs?q=exit+codes"))
    assert 'href="/docs/cli?project=vision#exit-codes"' in page
    assert "<mark>" in page
    results = html_of(alice.get("/docs?q=canary+rollback"))
    assert results.index("/docs/endpoints?project=vision#") < results.index("vision#added")
    assert "No results for" in text_of(alice.get("/docs?q=zzzz"))
    hostile = html_of(alice.get("/docs?q=<script>alert(1)</script>"))
    assert "<script>alert" not in hostile


def test_an_unknown_page_is_not_found_and_nobody_reads_without_signing_in(
    people: Personas, browse: Browse
) -> None:
    assert browse(people.alice).get("/docs/no-such-page").status_code == 404
    assert Client().get("/docs/training").headers["Location"] == (
        "/account/login?next=/docs/training"
    )


def test_pages_link_to_the_page_that_explains_them(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    assert 'href="/docs/datasets?project=vision"' in html_of(alice.get("/p/vision/datasets"))
    assert 'href="/docs/cli"' in html_of(alice.get("/settings/tokens"))
    assert "docs-link" not in html_of(alice.get("/docs"))


def test_the_portal_builds_the_wheel_of_the_client_once(settings: Settings, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path
    assert build_client_wheel()
    assert not build_client_wheel()
    with zipfile.ZipFile(wheel_folder() / WHEEL_NAME) as wheel:
        names = wheel.namelist()
    assert {"slipway/__init__.py", "slipway/py.typed", "slipway/cli/main.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "portal" in name]


@pytest.mark.parametrize("name", ["install"])
def test_the_written_name_of_the_wheel_is_the_current_one(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"slipway-[\w.]+-py3-none-any\.whl", text)) == {WHEEL_NAME}
