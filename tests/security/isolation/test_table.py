"""SECURITY.md claims what the attacks show, and nothing else."""

import re
from pathlib import Path

import pytest

from tests.security.isolation.attacks import ATTACKS, table
from tests.security.isolation.hostile.attacker import MODULES

PAGE = Path(__file__).parents[3] / "SECURITY.md"
_TABLE = re.compile(r"(?<=<!-- attacks -->\n)\n.*?(?=\n<!-- /attacks -->)", re.DOTALL)


def test_the_page_shows_the_table(refresh: bool) -> None:
    text = PAGE.read_text()
    assert _TABLE.search(text), "the page has a place for the table"
    expected = f"\n{table()}\n"
    if refresh:
        PAGE.write_text(_TABLE.sub(lambda _: expected, text))
        return
    assert _TABLE.findall(text) == [expected], (
        "run this test with --refresh, and read the difference"
    )


@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS])
def test_every_line_of_the_table_is_an_attack(name: str) -> None:
    assert callable(getattr(MODULES[name], name))
