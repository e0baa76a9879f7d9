"""Pages of experiments and runs: lists, one run, comparison, artifacts, the trash."""

import io
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from django.test import Client
from pyarrow import parquet
from pytest_django import Settings

from portal.experiments.adapters.mlflow import tracker
from portal.experiments.models import Experiment, ModelVersion, RegisteredModel, Run, SavedView, Tag
from tests.personas import Personas
from tests.portal.datasets.hostile import nested_parquet
from tests.portal.experiments.test_runs_api import write
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


@pytest.fixture(autouse=True)
def _place(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = tmp_path.as_uri()


@pytest.fixture
def digits(people: Personas) -> Experiment:
    """An experiment of vision with three runs, and Charlie's of the same name."""
    made = make_experiment(people.vision)
    make_run(made, "first", metrics={"loss": 0.5}, params={"lr": "0.1", "opt": "sgd"})
    make_run(made, "second", minute=1, metrics={"loss": math.nan}, params={"lr": "0.2"})
    make_run(made, "third", minute=2, metrics={"loss": 0.25}, status="RUNNING", end_time=None)
    make_run(make_experiment(people.other), "foreign", metrics={"loss": 0.1})
    return made


def run_named(name: str) -> Run:
    """A run by its name."""
    return Run.objects.get(name=name)


def test_an_empty_project_shows_how_to_log_here(people: Personas, browse: Browse) -> None:
    page = browse(people.vera).get("/p/vision/experiments")
    assert "No experiments yet" in text_of(page)
    assert "export MLFLOW_TRACKING_URI=http://localhost:8000/mlflow/vision" in text_of(page)


class _Healthy(BaseHTTPRequestHandler):
    """Stands where MLflow's server listens."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def _listening(at: Path) -> Iterator[None]:
    with UnixStreamServer(str(at), _Healthy) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield
        server.shutdown()


def test_pages_say_that_mlflows_server_is_away_and_show_what_they_can(
    people: Personas, browse: Browse, digits: Experiment, settings: Settings, tmp_path: Path
) -> None:
    vera, run = browse(people.vera), run_named("first")
    pages = ["/p/vision/experiments", "/p/vision/runs", f"/p/vision/runs/{run.pk}"]
    settings.SLIPWAY_TRACKING_SOCKET = tmp_path / "nobody"
    shown = [text_of(vera.get(page)) for page in pages]
    assert all("server is not responding" in words for words in shown)
    assert "first" in shown[1]
    assert "first" in shown[2]
    settings.SLIPWAY_TRACKING_SOCKET = tmp_path / "s"
    with _listening(tmp_path / "s"):
        assert not any("server is not responding" in text_of(vera.get(page)) for page in pages)


def test_the_list_of_runs_shows_what_was_logged_and_narrows_down(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    vera = browse(people.vera)
    assert "digits 3" in text_of(vera.get("/p/vision/experiments"))
    url = f"/p/vision/experiments/{digits.pk}"
    words = text_of(vera.get(url))
    assert "foreign" not in words
    assert words.index("third") < words.index("second") < words.index("first")
    assert "NaN" in words
    text = text_of(vera.get(url + "?" + urlencode({"filter": "metrics.loss < 0.3"})))
    assert "third" in text
    assert "second" not in text
    ordered = text_of(vera.get(url + "?order=metrics.loss&c=metrics.loss"))
    assert ordered.index("third") < ordered.index("first") < ordered.index("second")
    assert "sgd" not in ordered
    wrong = vera.get(url + "?" + urlencode({"filter": "metrics.loss < 'x'"}))
    assert wrong.status_code == 200
    assert "At position 16: metrics.loss must be compared with a number" in text_of(wrong)
    many = {"filter": " and ".join(f"metrics.m{n} > 1" for n in range(250))}
    assert "more than 50 conditions" in text_of(vera.get(url + "?" + urlencode(many)))
    assert "longer than 6000" in text_of(vera.get(url + "?filter=" + "a" * 9_000))


def test_plain_words_find_runs_by_name_tag_parameter_person_and_id(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    vera, first = browse(people.vera), run_named("first")
    Tag.objects.create(run=run_named("second"), key="team", value="50%_Vision")

    def listed(**query: str) -> list[str]:
        page = vera.get("/p/vision/runs?" + urlencode(query))
        assert page.context["view"].fault == ""
        return [row.run.name for row in page.context["view"].rows]

    assert listed(q="FIR") == listed(q="sgd") == listed(q=first.pk[:9].upper()) == ["first"]
    assert listed(q="vision") == listed(q="50%_") == listed(q="team") == ["second"]
    assert listed(q="%") == ["second"]
    assert listed(q="bob") == ["third", "second", "first"]
    assert listed(q="bob sgd") == ["first"]
    assert listed(q="lr", filter="params.lr = '0.2'") == ["second"]
    assert listed(q="foreign") == []
    # A word that is typed as a filter is searched for.
    assert listed(filter="sgd") == ["first"]
    assert listed(filter="thi", q="bob") == ["third"]
    assert "cannot be searched" in text_of(vera.get("/p/vision/runs?q=" + "a" * 201))


def test_person_source_commit_and_model_are_columns(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    run = run_named("first")
    Tag.objects.create(run=run, key="mlflow.source.name", value="train.py")
    RegisteredModel.objects.create(workspace=people.vision.pk, name="net")
    ModelVersion.objects.create(
        workspace=people.vision.pk, name="net", version=3, run_id=run.pk, current_stage="None"
    )
    vera = browse(people.vera)
    offered = html_of(vera.get("/p/vision/runs/columns"))
    for column in ("attributes.user_id", "tags.`mlflow.source.name`", "model"):
        assert f'value="{column}"' in offered
    query = [("c", "attributes.user_id"), ("c", "tags.`mlflow.source.name`"), ("c", "model")]
    words = text_of(vera.get("/p/vision/runs?" + urlencode(query)))
    assert "Duration Model Person Source" in words
    assert "net 3 bob train.py" in words


def test_name_and_notes_are_edited_and_notes_are_safe_markdown(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob, run = browse(people.bob), run_named("first")
    address = f"/p/vision/runs/{run.pk}"
    note = "# Best\n\n<script>alert(1)</script> [go](javascript:alert(1)) **bold** ![x](http://e/x)"
    saved = bob.post(f"{address}/edit", {"name": "winner", "note": note})
    assert saved.headers["Location"] == address
    page = html_of(bob.get(address))
    assert "<h1>Best</h1>" in page
    assert "<strong>bold</strong>" in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert 'src="http://e/x"' not in page
    assert Run.objects.get(pk=run.pk).name == "winner"
    assert bob.post(f"{address}/edit", {"name": "", "note": ""}).status_code == 422
    bob.post("/p/vision/runs/delete", {"run": [run.pk]})
    refused = bob.post(f"{address}/edit", {"name": "again", "note": ""})
    assert "This run is in the trash. Restore it, then change it." in text_of(refused)
    assert browse(people.vera).get(f"{address}/edit").status_code == 403


def test_selected_runs_are_tagged_and_moved(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob, other = browse(people.bob), make_experiment(people.vision, "other")
    ids = [run_named(name).pk for name in ("first", "second", "foreign")]
    query = {"experiment": digits.pk, "query": "q=bob"}
    sent = {"run": ids, "tag_name": "team", "tag_value": "vision"} | query
    page = bob.post("/p/vision/runs/tag", sent, follow=True)
    assert page.redirect_chain[-1][0] == f"/p/vision/experiments/{digits.pk}?q=bob"
    assert "2 runs tagged." in text_of(page)
    assert "1 of the 3 selected runs is not active in this project." in text_of(page)
    tags = Tag.objects.filter(key="team").values_list("run__name", "value").order_by("run__name")
    assert list(tags) == [("first", "vision"), ("second", "vision")]
    bob.post("/p/vision/runs/tag", {"run": ids[:1], "tag_name": "team", "do": "remove"})
    assert Tag.objects.filter(key="team").count() == 1
    system = bob.post("/p/vision/runs/tag", sent | {"tag_name": "mlflow.user"}, follow=True)
    assert "set by the system" in text_of(system)
    page = bob.post("/p/vision/runs/move", {"run": ids, "to": other.pk}, follow=True)
    assert "2 runs moved." in text_of(page)
    moved = Run.objects.filter(experiment=other).order_by("name").values_list("name", flat=True)
    assert list(moved) == ["first", "second"]
    foreign = run_named("foreign").experiment_id
    page = bob.post("/p/vision/runs/move", {"run": ids, "to": foreign}, follow=True)
    assert f"This project has no active experiment {foreign}." in text_of(page)
    assert browse(people.vera).post("/p/vision/runs/tag", sent).status_code == 403


def test_a_view_is_saved_under_a_name_and_opened_by_its_address(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob, vera = browse(people.bob), browse(people.vera)
    query = urlencode({"q": "first", "c": "metrics.loss", "cursor": "x", "smoothing": "0.5"})
    form = {"name": "Best", "query": query, "experiment": digits.pk}
    opened = bob.post("/p/vision/views", form).headers["Location"]
    view = SavedView.objects.get()
    expected = {"q": "first", "c": "metrics.loss", "smoothing": "0.5", "view": view.pk}
    assert opened == f"/p/vision/experiments/{digits.pk}?{urlencode(expected)}"
    shared = f"/p/vision/views/{view.pk}"
    assert vera.get(shared).headers["Location"] == opened
    assert shared in html_of(vera.get("/p/vision/runs"))
    bob.post("/p/vision/views", form | {"query": "q=second"})
    assert SavedView.objects.get().query == "q=second"
    assert browse(people.charlie).get(f"/p/{people.other.slug}/views/{view.pk}").status_code == 404
    foreign = run_named("foreign").experiment_id
    assert bob.post("/p/vision/views", form | {"experiment": foreign}).status_code == 404
    assert vera.post(f"{shared}/delete").status_code == 403
    assert bob.post(f"{shared}/delete").status_code == 302
    assert not SavedView.objects.exists()


def test_groups_lead_to_their_runs(people: Personas, browse: Browse, digits: Experiment) -> None:
    vera = browse(people.vera)
    page = vera.get(f"/p/vision/experiments/{digits.pk}?group=params.opt&c=metrics.loss")
    assert "mean of loss" in text_of(page)
    links = [unescape(it) for it in re.findall(r'href="(\?filter=[^"]+)"', html_of(page))]
    shown = [text_of(vera.get(f"/p/vision/experiments/{digits.pk}{link}")) for link in links]
    assert ["first" in words for words in shown] == [False, True]


def test_the_columns_offered_are_those_of_the_experiment(
    people: Personas, browse: Browse, digits: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/p/vision/runs/columns?experiment={digits.pk}&c=params.lr&c=metrics.rare"
    page = browse(people.vera).get(address)
    words = text_of(page)
    assert "Logged by the runs shown here." in words
    monkeypatch.setattr(tracker, "_SAMPLED_ROWS", 2)
    assert "Found in the newest and oldest" in text_of(browse(people.vera).get(address))
    assert "metrics.loss" in words
    assert "metrics.rare" in words
    assert 'value="params.lr" checked' in html_of(page)


def test_deleting_runs_offers_to_undo_it(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob, run = browse(people.bob), run_named("first")
    back = bob.post("/p/vision/runs/delete", {"run": [run.pk], "experiment": digits.pk})
    page = bob.get(back.headers["Location"])
    assert "1 run moved to the trash" in text_of(page)
    assert run_named("first").lifecycle_stage == "deleted"
    assert "first" in text_of(bob.get("/p/vision/runs?stage=deleted"))
    bob.post("/p/vision/runs/restore", {"run": [run.pk]})
    assert run_named("first").lifecycle_stage == "active"
    assert browse(people.vera).post("/p/vision/runs/delete", {"run": [run.pk]}).status_code == 403


def test_a_choice_of_too_many_runs_is_refused_whole(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob = browse(people.bob)
    ids = [make_run(digits, f"run-{number}").pk for number in range(201)]
    for verb in ("delete", "restore"):
        page = bob.post(f"/p/vision/runs/{verb}", {"run": ids}, follow=True)
        assert "201 runs are selected; at most 200 can be changed at once." in text_of(page)
        assert not Run.objects.filter(lifecycle_stage="deleted").exists()
    whole = bob.post("/p/vision/runs/delete", {"run": ids[1:]}, follow=True)
    assert "200 runs moved to the trash" in text_of(whole)


def test_chosen_runs_that_are_not_changed_are_counted(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    bob = browse(people.bob)
    ids = [run_named(name).pk for name in ("first", "second", "foreign")]
    page = bob.post("/p/vision/runs/delete", {"run": [*ids, "a name"]}, follow=True)
    assert "2 of the 4 selected runs are not active in this project." in text_of(page)
    page = bob.post("/p/vision/runs/restore", {"run": ids, "stage": "deleted"}, follow=True)
    assert "2 runs restored." in text_of(page)
    assert "1 of the 3 selected runs is not in the trash, or its experiment is." in text_of(page)


def test_emptying_the_bin_says_what_it_freed(
    people: Personas, browse: Browse, digits: Experiment, tmp_path: Path
) -> None:
    mia, run = browse(people.mia), run_named("first")
    write(tmp_path, run, "weights.bin", b"x" * 2048)
    mia.post("/p/vision/runs/delete", {"run": [run.pk]})
    assert "You cannot undo this" in text_of(mia.get("/p/vision/trash/empty"))
    page = mia.post("/p/vision/trash/empty", follow=True)
    assert "1 run deleted, 1 file and 2,048 bytes freed" in text_of(page)


def test_the_page_of_a_run_tells_all_about_it(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    page = browse(people.vera).get(f"/p/vision/runs/{run_named('first').pk}")
    words = text_of(page)
    for phrase in ("first", "finished", "loss 0.5", "lr 0.1", "No artifacts logged"):
        assert phrase in words
    assert 'data-key="loss"' in html_of(page)
    foreign = browse(people.vera).get(f"/p/vision/runs/{run_named('foreign').pk}")
    assert foreign.status_code == 404


def test_runs_are_compared_by_what_differs(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    ids = [run_named(name).pk for name in ("first", "second", "third", "foreign")]
    query = urlencode([("run", run_id) for run_id in ids])
    words = text_of(browse(people.vera).get(f"/p/vision/compare?{query}"))
    assert "3 runs side by side" in words
    assert "foreign" not in words
    assert "3 of 3 parameters and metrics differ." in words
    assert "1 of the selected runs is missing: deleted, or not in this project." in words


def test_selected_runs_are_compared_under_an_address_without_a_token(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    ids = [run_named(name).pk for name in ("first", "second")]
    answer = browse(people.vera).post("/p/vision/compare", {"run": ids, "stage": "active"})
    assert answer.status_code == 302
    assert answer["Location"] == f"/p/vision/compare?run={ids[0]}&run={ids[1]}"
    page = browse(people.vera).get("/p/vision/runs")
    form = html_of(page).partition('id="runs-form"')
    assert form[0].rpartition("<form")[2].strip().startswith('method="post"')


def test_runs_and_experiments_open_without_their_project(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    run, vera = run_named("first").pk, browse(people.vera)
    assert vera.get(f"/open/runs/{run}")["Location"] == f"/p/vision/runs/{run}"
    opened = vera.get(f"/open/experiments/{digits.pk}")
    assert opened["Location"] == f"/p/vision/experiments/{digits.pk}"
    for hidden in (f"runs/{run_named('foreign').pk}", f"runs/{'0' * 32}", f"experiments/{2**40}"):
        assert vera.get(f"/open/{hidden}").status_code == 404
    stranger = Client().get(f"/open/runs/{run}")
    assert stranger["Location"].startswith("/account/login?next=")


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Digits"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [{"data": {"text/plain": "2", "text/html": "<b>two</b>"}}],
        },
    ]
}


def packed(table: pa.Table, **options: Any) -> bytes:
    """Return a table as Parquet."""
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.thorough
def test_parquet_is_previewed_by_its_first_rows_and_types(
    people: Personas, browse: Browse, digits: Experiment, tmp_path: Path
) -> None:
    run, vera = run_named("first"), browse(people.vera)
    scores = pa.table({"name": ["<i>ann</i>", None], "score": [1.5, 2.0], "tags": [["x"], []]})
    wide = pa.table({f"column_{at}": pa.array([at]) for at in range(1500)})
    # Equal numbers take some kilobytes here, and a thousand times that where all are unpacked.
    blown = packed(pa.table({"zero": pa.nulls(4_000_000, pa.int64()).fill_null(0)}))
    files = {
        "scores.parquet": packed(scores),
        "wide.parquet": packed(wide),
        "blown.parquet": blown,
        "cut.parquet": packed(scores)[:-20],
        "none.parquet": b"",
        "text.parquet": b"PAR1 and then nothing",
        "deep.parquet": nested_parquet(100_000),
    }
    for name, content in files.items():
        write(tmp_path, run, name, content)
    url = f"/p/vision/runs/{run.pk}"
    shown = {name: html_of(vera.get(f"{url}?path={name}")) for name in files}
    assert "&lt;i&gt;ann&lt;/i&gt;" in shown["scores.parquet"]
    assert re.search(r'<th scope="col">score <span[^>]*>double</span>', shown["scores.parquet"])
    assert "not shown here" not in shown["scores.parquet"]
    assert "column_49 " in shown["wide.parquet"]
    assert "column_50 " not in shown["wide.parquet"]
    assert "1,450 more columns are not shown here." in shown["wide.parquet"]
    assert "The first 100 rows are shown; the file has more." in shown["blown.parquet"]
    for name in ("cut.parquet", "none.parquet", "text.parquet"):
        assert "This is not Parquet that can be read" in shown[name]
    assert "died (SIGSEGV)" in shown["deep.parquet"]


def test_previews_say_how_much_of_a_file_they_leave_out(
    people: Personas, browse: Browse, digits: Experiment, tmp_path: Path
) -> None:
    run, vera = run_named("first"), browse(people.vera)
    cell = {"cell_type": "code", "source": "f()"}
    long_text = {"output_type": "stream", "text": ["x" * 30_000]}
    page_only = {"output_type": "display_data", "data": {"text/html": ["<b>x</b>"]}}
    files = {
        "wide.csv": ",".join(f"c{at}" for at in range(52)) + "\n",
        "long.csv": "a\n" + "1\n" * 130,
        "large.csv": "a,b\n" + "123456789,1\n" * 30_000,
        "large.txt": "x" * 300_000,
        "cells.ipynb": json.dumps({"cells": [cell] * 303}),
        "text.ipynb": json.dumps({"cells": [cell | {"outputs": [long_text, page_only]}]}),
        "whole.csv": "a\n1\n",
    }
    for name, content in files.items():
        write(tmp_path, run, name, content.encode())
    shown = {
        name: text_of(vera.get(f"/p/vision/runs/{run.pk}?path={name}#preview")) for name in files
    }
    assert "2 more columns are not shown here." in shown["wide.csv"]
    assert "30 more rows are not shown here." in shown["long.csv"]
    large = "At most 100 rows of the first 262,144 of 360,004 bytes are shown; the file has more."
    assert large in shown["large.csv"]
    assert "Only the first 262,144 of 300,000 bytes are shown." in shown["large.txt"]
    assert "3 more cells: download it to see them." in shown["cells.ipynb"]
    assert "(the beginning of 30,000 characters)" in shown["text.ipynb"]
    assert "An output of text/html is not shown here." in shown["text.ipynb"]
    assert "shown here" not in shown["whole.csv"]


def test_metrics_without_a_chart_are_counted(
    people: Personas, browse: Browse, digits: Experiment
) -> None:
    run = make_run(digits, "many", metrics={f"m{number:02}": 1.0 for number in range(26)})
    page = text_of(browse(people.vera).get(f"/p/vision/runs/{run.pk}"))
    assert "2 more metrics without a chart: select them under Metrics." in page


def test_artifacts_are_previewed_without_trusting_them(
    people: Personas, browse: Browse, digits: Experiment, tmp_path: Path
) -> None:
    run, vera = run_named("first"), browse(people.vera)
    files = {
        "table.csv": b"name,score\n<i>ann</i>,1\n",
        "note.txt": b"<script>alert(1)</script>",
        "walk.ipynb": json.dumps(NOTEBOOK).encode(),
        "page.html": b"<script>document.title</script>",
        "plot.png": b"\x89PNG",
        "deep/weights.bin": b"\0\1",
    }
    for name, content in files.items():
        write(tmp_path, run, name, content)
    url = f"/p/vision/runs/{run.pk}"
    shown = {name: html_of(vera.get(f"{url}?path={name}")) for name in files}
    assert "&lt;i&gt;ann&lt;/i&gt;" in shown["table.csv"]
    assert '<th scope="col">score</th>' in shown["table.csv"]
    assert "&lt;script&gt;alert(1)" in shown["note.txt"]
    assert "<h1>Digits</h1>" in shown["walk.ipynb"]
    assert "<b>two</b>" not in shown["walk.ipynb"]
    assert "No preview for this file type" in shown["deep/weights.bin"]
    assert "This artifact no longer exists" in html_of(vera.get(f"{url}?path=none"))
    assert vera.get(f"{url}?path=../../x").status_code == 200
    kept = b"".join(vera.get(f"{url}/download?path=note.txt"))
    assert kept == files["note.txt"]
    (frame,) = re.findall(
        r'<iframe[^>]*sandbox="allow-scripts"[^>]*src="([^"]+)"', shown["page.html"]
    )
    address = unescape(frame)
    anybody = browse(people.charlie)
    answer = anybody.get(address)
    assert b"document.title</script>" in answer.content
    policy = answer.headers["Content-Security-Policy"]
    assert "sandbox allow-scripts" in policy
    assert "default-src 'none'" in policy
    assert "allow-same-origin" not in policy
    for forged in (
        address.replace("page.html", "note.html"),
        address[:-2],
        f"{url}/file?path=page.html",
    ):
        assert anybody.get(forged).status_code == 404, forged
