"""Tables and parts beyond the limits are stated and never left out in silence."""

from pathlib import Path

import pytest
from django.test import Client

import slipway
from portal.datasets.models import Entry, Version
from portal.datasets.tables import group
from slipway import errors
from slipway.cli.main import main
from slipway.datasets import dataset
from slipway.schemas.datasets import digest_of, key_of
from tests.live import LivePortal
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.pushing import AT, begin, close, push


def _name(number: int) -> str:
    return f"table_{'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}.csv"


def test_tables_beyond_fifty_are_counted() -> None:
    tables = group(_name(number) for number in range(53))
    assert (len(tables.groups), tables.left_out) == (50, 3)


def test_the_page_and_the_api_state_tables_beyond_the_limit(people: Personas) -> None:
    bob = Api.of(people.bob)
    browser = Client()
    browser.force_login(people.bob)
    assert push(bob, {"t.csv": b"x\n1\n"})["tables_left_out"] == 0
    page = browser.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "not examined" not in page
    # Each table is examined by a process of its own: fifty of them are for the test below.
    Version.objects.update(tables_left_out=3)
    assert json_of(bob.get(f"{AT}/digits/versions/1"))["tables_left_out"] == 3
    page = browser.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "3 more tables of this version are not examined" in page


@pytest.mark.slow
def test_tables_beyond_fifty_are_stated_on_the_command_line_and_in_a_job(
    alice: slipway.Client,
    portal: LivePortal,
    project: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SLIPWAY_URL", portal.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", portal.tokens["alice"])
    monkeypatch.setenv("SLIPWAY_PROJECT", project)
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(52):
        (folder / _name(number)).write_text("x\n1\n")
    for arguments in (["push", "many", str(folder)], ["show", "many"], ["stats", "many"]):
        assert main(["dataset", *arguments]) == 0
        printed = " ".join("".join(capsys.readouterr()).split())
        assert "2 more exceed the limit of tables" in printed
    with pytest.raises(errors.InvalidInput, match=r"2 more exceed the limit of tables; read"):
        dataset("many", project=project, client=alice).arrow(_name(51))


@pytest.mark.slow
def test_parts_beyond_a_hundred_thousand_refuse_the_table(people: Personas) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    version = Version.objects.get(pk=draft.rpartition("/")[2])
    paths = [f"part-{number:06}.csv" for number in range(100_001)]
    Entry.objects.bulk_create(
        [
            Entry(version=version, path=path, key=key_of(path), digest=digest_of([]), size_bytes=0)
            for path in paths
        ],
        batch_size=5_000,
    )
    refused = close(bob, draft)
    assert refused["state"] == "refused"
    assert "It has 100,001 parts; a table has at most 100,000" in refused["problems"][0]["message"]
    ready = close(bob, draft, allow_bad_rows=True)
    assert ready["state"] == "ready"
    (table,) = json_of(bob.get(f"{AT}/digits/versions/1/tables"))
    assert table["files"] == 100_001
    assert table["note"].startswith("Not read: It has 100,001 parts")
