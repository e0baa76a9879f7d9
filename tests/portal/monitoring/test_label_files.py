"""Files of labels through the SDK: read by the reader of tables, compared by value."""

from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

import slipway
from portal.accounts.models import AuditEvent
from portal.monitoring.exports_and_erasure import run_pending
from slipway import errors
from tests.personas import Personas, make_token
from tests.portal.endpoints.pages import browser_of
from tests.portal.monitoring.captured import Traffic

pytestmark = pytest.mark.postgres


class _Portal(httpx.BaseTransport):
    """Hands requests of the SDK to the portal of this process."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        answer: Any = Client().generic(
            request.method,
            request.url.raw_path.decode(),
            request.read(),
            content_type=request.headers.get("content-type", "application/json"),
            headers={"Authorization": request.headers["authorization"]},
        )
        headers = {"content-type": answer.headers.get("content-type", "application/json")}
        return httpx.Response(answer.status_code, headers=headers, content=answer.content)


@pytest.fixture
def bob(traffic: Traffic, people: Personas) -> slipway.Client:
    """The SDK, signed in as Bob."""
    return slipway.Client("http://testserver", make_token(people.bob), transport=_Portal())


def _answer(traffic: Traffic, answers: list[Any]) -> list[str]:
    requests = [{"dataframe_records": [{"amount": float(at)}]} for at in range(len(answers))]
    ids = traffic.capture(requests, [{"predictions": [answer]} for answer in answers])
    traffic.look()
    return ids


def _send(bob: slipway.Client, file: Path) -> Any:
    return bob.endpoints.monitoring.label_file("digits", file, project="vision")


@pytest.mark.thorough
def test_empty_values_are_skipped_counted_and_shown(
    traffic: Traffic, bob: slipway.Client, tmp_path: Path
) -> None:
    ids = _answer(traffic, [True] * 10)
    file = tmp_path / "truth.csv"
    values = ["", "1", "0", "1.0", "true", "False", " ", "", "TRUE", "1"]
    lines = [f"{name},{value}" for name, value in zip(ids, values, strict=True)]
    text = "\n".join(["prediction_id,value", *lines]) + "\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = _send(bob, file)
    assert (done.added, done.empty) == (7, 3)
    traffic.look()
    shown = traffic.shown()
    assert shown["quality"]["labelled"] == 7
    assert shown["quality"]["figures"]["accuracy"] == pytest.approx(5 / 7)
    assert shown["empty_labels"] == 3
    assert shown["quality"]["misfits"] == 0
    file.write_bytes(text.encode("utf-16"))
    assert _send(bob, file).same == 7


@pytest.mark.thorough
def test_empty_labels_sent_twice_count_once_and_not_once_they_have_a_value(
    traffic: Traffic, bob: slipway.Client, tmp_path: Path
) -> None:
    ids = _answer(traffic, [True] * 4)
    file = tmp_path / "truth.csv"

    def send(*lines: str) -> Any:
        file.write_text("prediction_id,own_id,value\n" + "".join(f"{line}\n" for line in lines))
        return _send(bob, file)

    first = [f"{ids[0]},,", f"{ids[1]},,", f"{ids[1]},,", ",order-1,", f"{ids[2]},,1"]
    assert [send(*first).empty for _ in range(2)] == [4, 4]
    assert traffic.shown()["empty_labels"] == 3
    send(f"{ids[2]},,", f"{ids[3]},,1")
    assert traffic.shown()["empty_labels"] == 3  # the label of before still counts
    send(f"{ids[0]},,1", ",order-1,1")
    assert traffic.shown()["empty_labels"] == 1
    traffic.post("erasures", {"prediction_id": ids[1]}, status=202)
    run_pending()
    assert traffic.shown()["empty_labels"] == 0


@pytest.mark.thorough
def test_classes_with_leading_zeros_stay_text(
    traffic: Traffic, bob: slipway.Client, tmp_path: Path
) -> None:
    ids = _answer(traffic, ["007", "7", "1e3", "NA"])
    file = tmp_path / "truth.csv"
    rows = zip(ids, ["007", "007", "1e3", "NA"], strict=True)
    file.write_text("prediction_id,value\n" + "".join(f"{a},{b}\n" for a, b in rows))
    assert _send(bob, file).added == 4
    traffic.look()
    quality = traffic.shown()["quality"]
    assert (quality["labelled"], quality["figures"]["accuracy"]) == (4, 0.75)


@pytest.mark.thorough
def test_a_value_of_another_type_is_refused_by_line_column_and_value(
    traffic: Traffic, bob: slipway.Client, tmp_path: Path
) -> None:
    ids = _answer(traffic, [1.5, 2.5])
    traffic.settings(task="regression")
    file = tmp_path / "truth.csv"
    file.write_text(f"value,prediction_id\n1.5,{ids[0]}\n\n2.5 EUR,{ids[1]}\n")
    with pytest.raises(errors.InvalidInput) as refused:
        _send(bob, file)
    assert "line 4, column value" in refused.value.message
    assert "2.5 EUR" in refused.value.message
    assert traffic.get("labels")["items"] == []
    file.write_text(f"value,prediction_id\n1.5,{ids[0]},x\n")
    with pytest.raises(errors.InvalidInput, match="line 2"):
        _send(bob, file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(errors.InvalidInput, match="no column value"):
        _send(bob, file)
    with pytest.raises(errors.InvalidInput, match="cannot be read"):
        _send(bob, tmp_path / "nothing.csv")


@pytest.mark.thorough
def test_json_lines_and_parquet_are_read_with_their_types(
    traffic: Traffic, bob: slipway.Client, tmp_path: Path
) -> None:
    ids = _answer(traffic, [True, False, True])
    lines = tmp_path / "truth.jsonl"
    values = ["true", "false", "null"]
    lines.write_text(
        "".join(
            f'{{"prediction_id": "{name}", "value": {value}}}\n'
            for name, value in zip(ids, values, strict=True)
        )
    )
    assert (_send(bob, lines).added, _send(bob, lines).empty) == (2, 1)
    table = pa.table({"prediction_id": ids, "value": [1.0, float("nan"), 0.0]})
    pq.write_table(table, tmp_path / "truth.parquet")
    done = _send(bob, tmp_path / "truth.parquet")
    assert (done.same, done.empty, done.added) == (1, 1, 1)
    traffic.look()
    assert traffic.shown()["quality"]["figures"]["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.thorough
def test_a_file_of_labels_is_uploaded_on_a_page(traffic: Traffic, people: Personas) -> None:
    ids = _answer(traffic, [True, False, True])
    traffic.settings(task="classification", label_type="boolean")
    page = "/p/vision/endpoints/digits/monitoring"
    browser = browser_of(people.bob)
    assert f'href="{page}/labels"' in browser.get(page).content.decode()

    def upload(content: str, *, name: str = "truth.csv", status: int = 422) -> str:
        sent = {"file": SimpleUploadedFile(name, content.encode())}
        answer = browser.post(f"{page}/labels", sent, follow=True)
        assert answer.status_code == status, answer.content.decode()
        return " ".join(answer.content.decode().split())

    refused = upload(f"prediction_id,value\n{ids[0]},1\n{ids[1]},perhaps\n")
    assert "truth.csv, line 3, column value" in refused
    assert "perhaps" in refused
    assert "No label was stored" in refused
    assert "has no column value" in upload("a,b\n1,2\n")
    assert "truth.csv, line 2, column row" in upload(f"prediction_id,value,row\n{ids[0]},1,-1\n")
    assert "truth.parquet: " in upload("no parquet", name="truth.parquet")
    assert "required" in " ".join(browser.post(f"{page}/labels").content.decode().split())
    assert traffic.get("labels")["items"] == []
    assert not AuditEvent.objects.filter(verb="prediction.label").exists()
    text = f"prediction_id,value\n{ids[0]},1\n{ids[1]},\n{ids[2]},false\n"
    done = upload(text, name="../../truth.csv", status=200)
    assert "Labels: 2 added, 0 changed, 0 already known, 1 empty and skipped." in done
    assert AuditEvent.objects.filter(verb="prediction.label").count() == 1
    lines = "".join(
        f'{{"prediction_id": "{prediction_id}", "value": true}}\n' for prediction_id in ids
    )
    again = upload(lines, name="truth.jsonl", status=200)
    assert "Labels: 1 added, 1 changed, 1 already known" in again
    traffic.look()
    assert traffic.shown()["quality"]["labelled"] == 3
    stranger = browser_of(people.charlie)
    assert stranger.get(f"{page}/labels").status_code in (403, 404)
