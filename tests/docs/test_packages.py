"""Packages that the documentation promises are in the environment of the installation."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {"xgboost": "xgboost-cpu"}


def test_notebook_servers_have_the_packages_that_the_page_names() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    sentence = re.search(r"^- (numpy, [\w,\s-]+?)\s+are installed;", page, re.MULTILINE)
    assert sentence
    names = re.split(r",\s+|\s+and\s+", sentence[1])
    assert len(names) > 10
    pins = (ROOT / "requirements" / "jobs.txt").read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf"^{DISTRIBUTIONS.get(name, name)}==", pins, re.MULTILINE), name
