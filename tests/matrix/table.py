"""The checked-in table: a line for each verb of each route, a column for each kind of caller."""

from functools import cache
from pathlib import Path

from tests.matrix.actors import COLUMNS

FILE = Path(__file__).with_name("expected.txt")
REFRESH = "pytest tests/matrix --refresh"
Row = dict[str, str]
Table = dict[tuple[str, str], Row]
_HEADING = " ".join(COLUMNS) + "  route and verbs"


def written(table: Table) -> str:
    """Return the table as it is checked in: verbs of a route that answer alike share a line."""
    lines = [
        "# Who gets what: the status of every verb of every route for every kind of caller, with a",
        "# valid body and the objects of Alice's tenant. Written by",
        f"#     {REFRESH}",
        "# and reviewed line by line. LOG is a redirect to the sign-in page.",
        *(f"# {short}  {meaning}" for short, meaning in COLUMNS.items()),
        "",
        _HEADING,
    ]
    for template in dict.fromkeys(template for template, _verb in table):
        alike: dict[str, list[str]] = {}
        for (of, verb), row in table.items():
            if of == template:
                alike.setdefault(" ".join(row[column] for column in COLUMNS), []).append(verb)
        lines += ["", *(f"{row}  {template} {' '.join(verbs)}" for row, verbs in alike.items())]
    return "\n".join(lines) + "\n"


def read() -> Table:
    """Return the checked-in table; empty when there is none, or one of other columns."""
    return _parsed(FILE.read_text(encoding="utf-8") if FILE.exists() else "")


@cache
def _parsed(text: str) -> Table:
    table: Table = {}
    lines = text.splitlines()
    if _HEADING not in lines:
        return table
    for line in lines:
        if not line or line.startswith("#") or line == _HEADING:
            continue
        words = line.split()
        cells, template, verbs = (
            words[: len(COLUMNS)],
            words[len(COLUMNS)],
            words[len(COLUMNS) + 1 :],
        )
        for verb in verbs:
            table[template, verb] = dict(zip(COLUMNS, cells, strict=True))
    return table
