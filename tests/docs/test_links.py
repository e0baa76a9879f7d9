"""Every link of every page leads somewhere, and every page is found."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import anchors_of, links_of, pages, read
from tests.live import ROOT


def faults_of(page: str, text: str) -> list[str]:
    """Say which links of a page lead nowhere."""
    faults = []
    for link in links_of(text):
        split = urlsplit(link)
        if split.scheme:
            if split.scheme != "https" or not split.netloc:
                faults.append(f"{link} is no address of the web")
            continue
        target = (ROOT / page).parent / split.path if split.path else ROOT / page
        if not target.exists() or ROOT not in target.resolve().parents:
            faults.append(f"{link} is not there")
        elif split.fragment and split.fragment not in anchors_of(
            read(target) if split.path else text
        ):
            faults.append(f"{link} has no such heading")
    return faults


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page: str) -> None:
    assert not faults_of(page, pages()[page])


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](nowhere.md) [b](#none) [c](http://example.org) ![d](x.png)\n\n# Here\n\n[e](#here)"
    targets = [fault.split()[0] for fault in faults_of("docs/cli.md", text)]
    assert targets == ["nowhere.md", "#none", "http://example.org", "x.png"]


def test_every_page_for_users_is_in_the_list_of_pages() -> None:
    listed = set(links_of(pages()["docs/README.md"]))
    written = {Path(page).name for page in pages() if page.startswith("docs/")} - {"README.md"}
    assert written <= listed


def test_the_first_page_leads_to_every_other_one() -> None:
    seen, to_look = set(), ["README.md"]
    while to_look:
        page = to_look.pop()
        if page in seen or page not in pages():
            continue
        seen.add(page)
        for link in links_of(pages()[page]):
            place = (ROOT / page).parent / urlsplit(link).path
            if not urlsplit(link).scheme and place.is_relative_to(ROOT):
                to_look.append(place.resolve().relative_to(ROOT.resolve()).as_posix())
    assert set(pages()) <= seen


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", pages()["SECURITY.md"])
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).is_file()]
