"""The pages of datasets."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from portal.core import clock
from portal.datasets.version_checks import check_waiting
from portal.web.datasets import views as datasets
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.pushing import begin, fill, push
from tests.portal.web.reading import text_of


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"


@pytest.mark.thorough
def test_a_person_looks_at_versions_compares_them_and_deletes_one(people: Personas) -> None:
    bob = Api.of(people.bob)
    push(bob, {"t.csv": b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(40))})
    push(bob, {"t.csv": b"a,b\n1,y\n", "new.bin": b"1"})
    browser = Client()
    browser.force_login(people.bob)
    listed = browser.get("/p/vision/datasets").content.decode()
    assert "digits:2" in listed
    assert "digits:2" in browser.get("/p/vision/datasets/digits").content.decode()
    page = browser.get("/p/vision/datasets/digits/v/2").content.decode()
    for words in ("Changes since digits:1", "40 → 1 rows", "Not used yet", "<rect"):
        assert words in page
    rows = browser.get("/p/vision/datasets/digits/v/1?rows=25").content.decode()
    assert "From row 26" in rows
    assert browser.get("/p/other/datasets").status_code == 404
    confirmation = browser.get("/p/vision/datasets/digits/v/2/delete").content.decode()
    assert "Delete digits:2?" in confirmation
    assert browser.post("/p/vision/datasets/digits/v/2/delete").status_code == 302
    assert browser.get("/p/vision/datasets/digits/v/2").status_code == 404
    assert browser.post("/p/vision/datasets/digits/delete").status_code == 302
    assert browser.get("/p/vision/datasets/digits").status_code == 404


@pytest.mark.thorough
def test_files_columns_changes_and_drafts_beyond_the_first_are_counted(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Api.of(people.bob)
    push(bob, {"t.csv": b"a\n1\n"})
    names = ",".join(f"c{number}" for number in range(253))
    files = {f"f{number:02}.bin": b"1" for number in range(52)}
    push(bob, files | {"t.csv": f"{names}\n{'1,' * 252}1\n".encode()})
    browser = Client()
    browser.force_login(people.bob)
    page = text_of(browser.get("/p/vision/datasets/digits/v/2"))
    assert "f09.bin and 42 more" in page
    assert "3 more files not shown here." in page
    assert "53 more columns not shown here." in page
    assert "204 more columns not shown here." in page, "of the changes"
    preview = json_of(bob.get("projects/vision/datasets/digits/versions/2/preview"))
    assert preview["columns_left_out"] == 253 - len(preview["columns"])
    monkeypatch.setattr(datasets, "DRAFTS_SHOWN", 1)
    for _ in range(3):
        begin(bob)
    assert "2 more not shown here" in text_of(browser.get("/p/vision/datasets/digits"))


def test_a_deletion_is_undone_by_a_button_for_three_days(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Api.of(people.bob)
    push(bob, {"a": b"one"})
    push(bob, {"a": b"two"})
    browser, viewer = Client(), Client()
    browser.force_login(people.bob)
    viewer.force_login(people.vera)
    at = "/p/vision/datasets"
    button = "Undo the deletion of"
    assert button not in browser.get(f"{at}/digits").content.decode()
    browser.post(f"{at}/digits/v/2/delete")
    assert f"{button} digits:2" in browser.get(f"{at}/digits").content.decode()
    assert button not in viewer.get(f"{at}/digits").content.decode()
    assert viewer.post(f"{at}/digits/v/2/restore").status_code == 403
    back = browser.post(f"{at}/digits/v/2/restore", follow=True).content.decode()
    assert "digits:2 restored." in back
    browser.post(f"{at}/digits/delete")
    assert f"{button} digits" in browser.get(at).content.decode()
    push(bob, {"a": b"three"})
    assert button not in browser.get(at).content.decode(), "its name is taken by another"
    browser.post(f"{at}/digits/delete")
    back = browser.post(f"{at}/digits/restore", follow=True).content.decode()
    assert "digits restored." in back
    assert browser.get(f"{at}/digits/v/1").status_code == 200
    browser.post(f"{at}/digits/v/1/delete")
    browser.post(f"{at}/digits/delete")
    later = clock.now() + timedelta(days=4)
    monkeypatch.setattr(clock, "now", lambda: later)
    browser.force_login(people.bob)
    assert button not in browser.get(at).content.decode()
    refused = browser.post(f"{at}/digits/restore", follow=True).content.decode()
    assert "deleted more than 3 days ago" in refused


@pytest.mark.thorough
def test_a_dataset_is_made_filled_refused_and_taken_all_the_same(people: Personas) -> None:
    browser = Client()
    browser.force_login(people.bob)
    refused = browser.post("/p/vision/datasets/new", {"name": "Not A Name"})
    assert refused.status_code == 422
    draft = browser.post("/p/vision/datasets/new", {"name": "digits"})
    assert draft.status_code == 302
    address = draft.headers["Location"]
    assert "Add files" in browser.get(address).content.decode()
    bob = Api.of(people.bob)
    at = begin(bob).rpartition("/")[0] + "/" + address.rpartition("/")[2]
    fill(bob, at, {"t.csv": b"a\n1\n" + b"1\n" * 20_000 + b"one\n"})
    assert browser.post(f"{address}/commit").status_code == 302
    assert "Checking the files" in browser.get(address).content.decode()
    check_waiting()
    page = browser.get(address).content.decode()
    assert "t.csv, line 20003" in page
    assert "Accept without bad rows" in page
    browser.post(f"{address}/commit", {"allow_bad_rows": "1"})
    check_waiting()
    assert "1 bad" in browser.get(address).content.decode()


@pytest.mark.thorough
def test_declarations_of_the_form_decide_how_tables_are_read_and_are_shown(
    people: Personas,
) -> None:
    browser = Client()
    browser.force_login(people.bob)
    draft = browser.post("/p/vision/datasets/new", {"name": "digits"}).headers["Location"]
    bob = Api.of(people.bob)
    at = begin(bob).rpartition("/")[0] + "/" + draft.rpartition("/")[2]
    fill(bob, at, {"t.csv": "zip;name\n1010;Jos\u00e9\n1020;NA\n".encode("latin-1")})
    form = {"types": "zip=varchar", "missing": "NA", "encoding": "latin-1", "separator": ";"}
    html = browser.post(f"{draft}/commit", form, follow=True).content.decode()
    assert "types.zip is not valid" in html
    browser.post(f"{draft}/commit", form | {"types": "zip=string"})
    check_waiting()
    assert json_of(bob.get(at))["settings"]["types"] == {"zip": "string"}
    page = browser.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "José" in page
    assert "Encoding latin-1; separator: semicolon. Missing values: the empty value" in page
    (table,) = json_of(bob.get("projects/vision/datasets/digits/versions/1/tables"))
    zips, name = table["statistics"]["columns"]
    assert (zips["type"], name["missing"]) == ("string", 1)


def test_viewers_look_and_change_nothing(people: Personas) -> None:
    push(Api.of(people.bob), {"t.csv": b"a\n1\n"})
    browser = Client()
    browser.force_login(people.vera)
    page = browser.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "Delete" not in page
    assert browser.post("/p/vision/datasets/digits/delete").status_code == 403
