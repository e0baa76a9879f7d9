"""Captured predictions as CSV and JSON lines: the values that were sent, whole or counted."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.test import Client

import slipway
from portal.datasets.version_checks import check_waiting
from portal.endpoints.models import Revision
from portal.monitoring import exports
from portal.monitoring.exports_and_erasure import run_pending
from tests.live import ROOT
from tests.personas import Personas, make_token
from tests.portal.endpoints.pages import browser_of
from tests.portal.monitoring.captured import Traffic

_INPUTS = {"id": "INT64", "zip": "BYTES", "amount": "FP64", "note": "BYTES", "at": "BYTES"}


def _declare(traffic: Traffic) -> None:
    inputs = [
        {"name": name, "datatype": kind, "shape": [-1], "required": name == "zip"}
        for name, kind in _INPUTS.items()
    ]
    signature = {"kind": "columns", "inputs": inputs, "outputs": [], "params": []}
    Revision.objects.filter(pk=traffic.revision_id).update(signature=signature)


def _export(traffic: Traffic, **query: Any) -> Any:
    answer = traffic.api.get(f"{traffic.root}/predictions/export?{urlencode(query)}")
    assert answer.status_code == 200, answer.content
    return answer


def _lines(traffic: Traffic, **query: Any) -> list[Any]:
    content = b"".join(_export(traffic, format="jsonl", **query).streaming_content)
    return [json.loads(line, parse_float=str) for line in content.splitlines()]


def _csv(traffic: Traffic, **query: Any) -> list[str]:
    content = b"".join(_export(traffic, **query).streaming_content)
    return content.decode().split("\r\n")


@pytest.mark.thorough
@pytest.mark.postgres
def test_csv_has_the_text_of_each_value_and_tells_empty_from_missing(traffic: Traffic) -> None:
    _declare(traffic)
    body = (
        b'{"dataframe_records": [{"id": 9007199254740993, "zip": "007", "amount": 0.1, "note": "",'
        b' "at": "2024-03-31T01:30:00+02:00", "more": {"b": [1, null]}},'
        b' {"id": null, "zip": "7", "amount": 1e300, "note": "=1+1, \\"x\\"\\n", "at": null}]}'
    )
    ids = traffic.capture([body], [{"predictions": ["a", [0.25, 0.75]]}])
    traffic.look()
    traffic.post("labels", {"labels": [{"prediction_id": ids[0], "row": 1, "value": "007"}]})
    header, first, second, last = _csv(traffic)
    assert header.startswith('"prediction_id","row","at","revision","model_version"')
    assert header.endswith(
        '"in.id","in.zip","in.amount","in.note","in.at","out.prediction","other_inputs",'
        '"other_outputs","params","unreadable","label"'
    )
    assert first.endswith(
        '9007199254740993,"007",0.1,"","2024-03-31T01:30:00+02:00","a",'
        '"{""more"":{""b"":[1,null]}}",,,,'
    )
    assert second.endswith(',"7",1e+300,"=1+1, ""x""\n",,"[0.25,0.75]",,,,,"007"')
    assert last == ""


@pytest.mark.thorough
def test_json_lines_have_all_digits_nesting_and_params(traffic: Traffic) -> None:
    body = b'{"inputs": {"x": [[[1, 2], [3, 4]]], "big": [%s]}, "params": {"k": 3}}'
    numbers = (b"0.12345678901234567890123", b"123456789012345678901234567890", b"-1.5e-7")
    for number in numbers:
        traffic.capture([body % number], [{"predictions": [[0.2, 0.8]]}])
    traffic.look()
    content = b"".join(_export(traffic, format="jsonl").streaming_content)
    lines = [json.loads(line, parse_float=str) for line in content.splitlines()]
    assert {str(line["inputs"]["big"]) for line in lines} == {
        "0.12345678901234567890123",
        "123456789012345678901234567890",
        "-1.5e-7",
    }
    assert all(line["inputs"]["x"] == [[1, 2], [3, 4]] for line in lines)
    assert all(line["outputs"] == {"prediction": ["0.2", "0.8"]} for line in lines)
    assert all(line["params"] == {"k": 3} for line in lines)


@pytest.mark.thorough
def test_tensors_keep_their_shape_and_bodies_without_rows_are_there_as_text(
    traffic: Traffic,
) -> None:
    tensor = {"name": "image", "datatype": "INT64", "shape": [2, 2, 2], "data": list(range(8))}
    scores = {"name": "scores", "datatype": "FP64", "shape": [2, 2], "data": [0.5, 0.5, 1, 0]}
    traffic.capture([{"inputs": [tensor]}], [{"outputs": [scores]}])
    traffic.capture([b'{"rows": [1]}'], [{"predictions": [1]}])
    traffic.look()
    lines = {len(line["inputs"]): line for line in _lines(traffic) if line["row"] == 0}
    assert lines[1]["inputs"] == {"image": [[0, 1], [2, 3]]}
    assert lines[1]["outputs"] == {"scores": ["0.5", "0.5"]}
    assert lines[0]["unreadable"] == {"request": '{"rows": [1]}'}
    unreadable = r'"{""request"":""{\""rows\"": [1]}""}",'
    assert [line.endswith(unreadable) for line in _csv(traffic)].count(True) == 1


@pytest.mark.thorough
def test_many_predictions_come_in_parts_once_each_and_newest_first(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_ROWS_AT_ONCE", 7)
    ids = traffic.capture(
        [{"dataframe_records": [{"a": at}, {"a": -at}]} for at in range(25)],
        [{"predictions": [0, 1]}] * 25,
    )
    traffic.look()
    answer = _export(traffic, format="jsonl")
    assert answer.headers["X-Slipway-Rows"] == "50"
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    expected = [(prediction_id, row) for prediction_id in reversed(ids) for row in (0, 1)]
    assert [(line["prediction_id"], line["row"]) for line in lines] == expected
    assert [line["inputs"]["a"] for line in lines[:2]] == [24, -24]
    listed = traffic.get("predictions", feature="a", operator=">", value="20")["items"]
    chosen = _lines(traffic, feature="a", operator=">", value="20")
    assert [prediction["prediction_id"] for prediction in chosen] == [
        prediction["prediction_id"] for prediction in listed
    ]


@pytest.mark.thorough
@pytest.mark.postgres
def test_predictions_to_be_erased_are_left_out_and_counted(traffic: Traffic) -> None:
    bodies = [
        {"dataframe_records": [{"a": at}], "client_request_id": f"order-{at}"} for at in range(5)
    ]
    ids = traffic.capture(bodies, [{"predictions": [0]}] * 5)
    traffic.look()
    traffic.post("erasures", {"own_id": "order-1"}, status=202)
    traffic.post("erasures", {"prediction_id": ids[3]}, status=202)
    for left_out in ("2", "0"):
        answer = _export(traffic, format="jsonl")
        assert answer.headers["X-Slipway-Rows"] == "3"
        assert answer.headers["X-Slipway-Rows-Left-Out"] == left_out
        lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
        assert [line["inputs"]["a"] for line in lines] == [4, 2, 0]
        run_pending()


@pytest.mark.thorough
def test_clients_that_do_not_read_keep_nobody_from_an_export(traffic: Traffic) -> None:
    traffic.capture([{"dataframe_records": [{"a": 1}]}], [{"predictions": [0]}])
    traffic.look()
    unread = [_export(traffic, format="jsonl") for _ in range(5)]
    for answer in unread:
        assert next(iter(answer.streaming_content)).startswith(b'{"prediction_id"')
    assert len(_lines(traffic)) == 1
    for answer in unread:
        assert not list(answer.streaming_content)


@pytest.mark.slow
def test_large_bodies_are_written_in_parts(traffic: Traffic) -> None:
    """A part ends after 64 MiB, wherever that is."""
    text = "x" * 700_000
    ids = [
        traffic.capture(
            [{"dataframe_records": [{"n": n, "t": text}]} for n in range(10)],
            [{"predictions": [0]}] * 10,
        )
        for _ in range(12)
    ]
    traffic.look()
    answer = _export(traffic, format="jsonl")
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert len({line["prediction_id"] for line in lines}) == len(lines) == 120
    assert {line["prediction_id"] for line in lines} == {
        prediction_id for some in ids for prediction_id in some
    }
    assert all(line["inputs"]["t"] == text for line in lines)


@pytest.mark.thorough
@pytest.mark.postgres
def test_a_selection_is_exported_with_its_types_and_without_erased_rows(
    traffic: Traffic, people: Personas
) -> None:
    _declare(traffic)
    at = "2024-03-31T01:30:00+02:00"
    bodies = [
        {
            "dataframe_records": [
                {"id": 2**53 + n, "zip": "007", "amount": None, "note": "", "at": at, "more": [n]}
            ],
            "client_request_id": f"order-{n}",
        }
        for n in range(5)
    ]
    ids = traffic.capture(bodies, [{"predictions": [0]}] * 5)
    traffic.look()
    traffic.post("labels", {"labels": [{"prediction_id": ids[4], "value": 7}]})
    made = traffic.post("selections", {"dataset": "chosen", "only_labelled": False}, status=202)
    early = traffic.api.get(f"{traffic.root}/predictions/export?selection={made['id']}")
    assert early.status_code == 409
    run_pending()
    check_waiting()
    traffic.post("erasures", {"own_id": "order-1"}, status=202)
    run_pending()
    traffic.post("erasures", {"prediction_id": ids[3]}, status=202)
    answer = _export(traffic, format="jsonl", selection=made["id"])
    assert answer.headers["X-Slipway-Rows"] == "3"
    assert answer.headers["X-Slipway-Rows-Left-Out"] == "2"
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    by_id = {line["slipway_prediction_id"]: line for line in lines}
    assert by_id.keys() == {ids[0], ids[2], ids[4]}
    last = by_id[ids[4]]
    assert (last["id"], last["zip"], last["amount"], last["note"]) == (2**53 + 4, "007", None, "")
    assert (last["more"], last["label"], by_id[ids[0]]["label"]) == ([4], 7, None)
    header, *rows, _end = _csv(traffic, selection=made["id"])
    assert header.startswith('"id","zip","amount","note","at","more","label","slipway_predic')
    assert any(row.startswith('9007199254740996,"007",,"","2024-') for row in rows)
    held = [_export(traffic, selection=made["id"]) for _ in range(4)]
    fifth = traffic.api.get(f"{traffic.root}/predictions/export?selection={made['id']}")
    assert (fifth.status_code, fifth.headers["Retry-After"]) == (503, "10")
    for response in held:
        assert b"".join(response.streaming_content)
    both = traffic.api.get(
        f"{traffic.root}/predictions/export?selection={made['id']}&own_id=order-1"
    )
    assert both.status_code == 422
    assert traffic.api.get(f"{traffic.root}/predictions/export?selection=sel_x").status_code == 404
    page = browser_of(people.bob).get("/p/vision/endpoints/digits/monitoring/predictions")
    assert f"?selection={made['id']}&amp;format=csv" in page.content.decode()


class _Portal(httpx.BaseTransport):
    """Hands requests of the SDK to the portal of this process."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        headers = {"Authorization": request.headers["authorization"]}
        answer: Any = Client().get(request.url.raw_path.decode(), headers=headers)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=content)


@pytest.mark.thorough
def test_the_sdk_exports_what_its_filters_match(traffic: Traffic, people: Personas) -> None:
    ids = traffic.capture(
        [{"dataframe_records": [{"a": at}]} for at in (1, 2)], [{"predictions": [0]}] * 2
    )
    traffic.look()
    bob = slipway.Client("http://testserver", make_token(people.bob), transport=_Portal())
    monitoring = bob.endpoints.monitoring
    with monitoring.export("digits", project="vision", feature="a", value=2) as export:
        assert export.number("x-slipway-rows", None) == 1
        assert b"".join(export).decode().splitlines()[1].startswith(f'"{ids[1]}",0,')
    with monitoring.export(
        "digits", project="vision", format="jsonl", prediction_id=ids[0]
    ) as export:
        assert json.loads(b"".join(export))["inputs"] == {"a": 1}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        headers = {"Authorization": self.headers["authorization"]}
        answer: Any = Client().get(self.path, headers=headers)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@pytest.mark.thorough
def test_the_command_line_writes_a_file_and_says_how_many_rows(
    traffic: Traffic, people: Personas, tmp_path: Path
) -> None:
    traffic.capture([{"dataframe_records": [{"zip": "007"}]}] * 3, [{"predictions": [0]}] * 3)
    traffic.look()
    file = tmp_path / "predictions.jsonl"
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.timeout = 0.2
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "platform"),
            "SLIPWAY_URL": f"http://127.0.0.1:{server.server_port}",
            "SLIPWAY_TOKEN": make_token(people.bob),
            "SLIPWAY_CONFIG_DIR": str(tmp_path),
        }
        arguments = ["endpoint", "monitoring", "export", "digits", "--project", "vision"]
        arguments += ["--format", "jsonl", "--output", str(file), "--feature", "zip"]
        command = [sys.executable, "-m", "slipway", *arguments, "--is", "=", "--value", "007"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
            while process.poll() is None:
                server.handle_request()
            assert process.stderr is not None
            message = process.stderr.read().decode()
    assert process.returncode == 0, message
    assert f"{file}: 3 rows, {file.stat().st_size:,} bytes." in message.replace("\n", " ")
    assert [json.loads(line)["inputs"]["zip"] for line in file.open()] == ["007"] * 3


@pytest.mark.thorough
def test_the_page_offers_both_forms_with_its_filters(traffic: Traffic, people: Personas) -> None:
    traffic.capture(
        [{"dataframe_records": [{"a": at}]} for at in (1, 2)], [{"predictions": [0]}] * 2
    )
    traffic.look()
    browser = browser_of(people.bob)
    page = browser.get(
        "/p/vision/endpoints/digits/monitoring/predictions?feature=a&operator=%3D&value=2"
    )
    address = "/p/vision/endpoints/digits/monitoring/predictions/export"
    query = "feature=a&amp;operator=%3D&amp;value=2"
    for form in ("csv", "jsonl"):
        assert f'href="{address}?{query}&amp;format={form}"' in page.content.decode()
    answer: Any = browser.get(f"{address}?feature=a&operator=%3D&value=2&format=jsonl")
    assert [line["inputs"] for line in map(json.loads, answer.streaming_content)] == [{"a": 2}]
    assert browser.get(f"{address}?format=xml").status_code == 422
