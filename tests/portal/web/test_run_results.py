"""Results of runs on pages: galleries, media, tables, charts, TensorBoard's files, comparison."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from pytest_django import Settings

from portal.experiments.models import Run, Tag
from tests.personas import Personas
from tests.portal.experiments.event_file_samples import CLASSIC, V2
from tests.portal.experiments.test_runs_api import write
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.images import png
from tests.portal.web.reading import html_of, text_of


@pytest.fixture(autouse=True)
def _place(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = tmp_path.as_uri()


@pytest.fixture
def run(people: Personas) -> Run:
    """A run of vision."""
    return make_run(make_experiment(people.vision), "first")


def log_image(folder: Path, run: Run, key: str, step: int, separator: str = "+") -> str:
    """Log an image as `mlflow.log_image` does, with its small copy; returns the path."""
    name = separator.join((key, "step", str(step), "timestamp", f"{1000 + step}", "0" * 8))
    write(folder, run, f"images/{name}.png", png())
    write(folder, run, f"images/{name}{separator}compressed.webp", b"RIFF")
    return f"images/{name}.png"


def test_logged_images_are_galleries_by_key_and_step(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    for step in (0, 5, 10):
        log_image(tmp_path, run, "val~cats", step)
    log_image(tmp_path, run, "dogs", 3, separator="%")
    write(tmp_path, run, "plots/<img src=x onerror=alert(1)>.png", png())
    write(tmp_path, run, "plots/shape.svg", b"<svg/>")
    write(tmp_path, run, "checkpoints/epoch=4-step=250.ckpt", b"x")
    page = browse(people.vera).get(f"/p/vision/runs/{run.pk}/results")
    words, html = text_of(page), html_of(page)
    assert "val/cats step 10" in words
    assert "dogs step 3" in words
    assert html.count("data-gallery>") == 2
    assert html.count('data-slider aria-label="Step of val/cats"') == 1
    assert "<img src=x" not in html
    assert "250 checkpoints/epoch=4-step=250.ckpt" in words
    assert f"/p/vision/runs/{run.pk}/file?path=plots%2Fshape.svg&amp;link=" in html
    assert f'data-results="/p/vision/runs/{run.pk}/results"' in html_of(
        browse(people.vera).get(f"/p/vision/runs/{run.pk}")
    )


def test_media_are_served_as_images_sound_and_films_alone(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    vera, url = browse(people.vera), f"/p/vision/runs/{run.pk}/media?path="
    whole = log_image(tmp_path, run, "cats", 1).replace("+", "%2B")
    files = {
        "bomb.png": png(0, 60_000, 60_000),
        "page.png": b"<script>alert(1)</script>",
        "plot.png": png(),
        "beep.wav": b"RIFF0123456789",
        "page.html": b"<script>alert(1)</script>",
        "shape.svg": b"<svg onload=alert(1)>",
    }
    for name, content in files.items():
        write(tmp_path, run, name, content)
    image = vera.get(url + whole)
    assert (image.status_code, image["Content-Type"]) == (200, "image/png")
    assert image["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in image["Content-Security-Policy"]
    assert b"".join(image) == png()
    bomb = vera.get(url + "bomb.png")
    assert bomb.status_code == 415
    assert "up to 64 megapixels" in bomb.content.decode()
    assert vera.get(url + "page.png").status_code == 415
    part = vera.get(url + "beep.wav", headers={"Range": "bytes=4-6"})
    assert (part.status_code, b"".join(part)) == (206, b"012")
    assert part["Content-Range"] == "bytes 4-6/14"
    assert vera.get(url + "beep.wav", headers={"Range": "bytes=99-"}).status_code == 416
    for name in ("page.html", "shape.svg", "none.png"):
        assert vera.get(url + name).status_code == 404, name
    assert browse(people.charlie).get(url + "plot.png").status_code == 404


TABLE: dict[str, Any] = {
    "columns": ["name", "score", "image"],
    "data": [
        ["<b>ann</b>", 2, {"type": "image", "filepath": "table_images/t/1.png"}],
        ["bob", 10, None],
        ["cid", None, None],
    ],
}


def test_a_logged_table_is_sorted_filtered_and_cut_to_pages(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    vera, url = browse(people.vera), f"/p/vision/runs/{run.pk}"
    large = {"columns": ["n", "text"], "data": [[n, "x" * 100] for n in range(9_000)]}
    tag = json.dumps([{"path": name, "type": "table"} for name in ("small.json", "large.json")])
    Tag.objects.create(run=run, key="mlflow.loggedArtifacts", value=tag)
    broken = b'{"columns": ["a", "b"], "data": [[1, 2], [3]]}'
    for name, content in {
        "small.json": json.dumps(TABLE).encode(),
        "large.json": json.dumps(large).encode(),
        "broken.json": broken,
        "deep.json": b'{"columns": [' + b"[" * 90_000,
    }.items():
        write(tmp_path, run, name, content)
    assert "small.json" in text_of(vera.get(f"{url}/results"))
    page = html_of(vera.get(f"{url}?path=small.json&tsort=score&torder=desc"))
    assert page.index(">bob<") < page.index("&lt;b&gt;ann") < page.index(">cid<")
    assert f'src="/p/vision/runs/{run.pk}/media?path=table_images%2Ft%2F1.png"' in page
    filtered = text_of(vera.get(f"{url}?path=small.json&tq=BO&tin=name"))
    assert "1 of 3 rows" in filtered
    # Read by the confined process.
    last = text_of(vera.get(f"{url}?path=large.json&tsort=n&torder=desc&tfrom=8950"))
    assert "8,951" in last
    words = text_of(vera.get(f"{url}?path=broken.json"))
    assert "Row 2 of this table does not have a value for each of its 2 columns." in words
    assert "not valid JSON" in text_of(vera.get(f"{url}?path=deep.json"))


def test_a_folder_of_many_files_is_not_read_to_its_end(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    for number in range(2_050):
        write(tmp_path, run, f"{number}.bin", b"")
    vera = browse(people.vera)
    results = text_of(vera.get(f"/p/vision/runs/{run.pk}/results"))
    assert "only 2,000 files were looked at" in results
    page = vera.get(f"/p/vision/runs/{run.pk}")
    assert "1,000 entries of this folder are shown; it has more." in text_of(page)
    assert html_of(page).count('class="artifact-name"') == 1_000


FIGURE = '{"data": [{"x": [1], "y": [2], "name": "</script><b>"}], "layout": {"title": "t"}}'


def test_texts_figures_and_charts_are_shown_as_what_they_are(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    vera, url = browse(people.vera), f"/p/vision/runs/{run.pk}"
    curves = [{"label": "</script>", "x": [0, 0.5, 1], "y": [0, 0.9, 1]}]
    files = {
        "notes.md": "# Title\n\n<script>x</script> [a](javascript:alert(1)) ![p](http://p/q.png)",
        "train.py": "def f():\n    return '<b>'\n",
        "conf.json": '{"a":{"b":[1,2]}}',
        "figure.json": FIGURE,
        "page.html": '<script src="https://cdn.plot.ly/plotly-3.1.0.min.js"></script><p>x',
        "charts/roc.json": json.dumps({"type": "roc_curve", "curves": curves}),
        "charts/bad.json": '{"type": "histogram", "edges": [0, 1], "counts": [1, 2]}',
        "beep.wav": "RIFF",
    }
    for name, content in files.items():
        write(tmp_path, run, name, content.encode())
    shown = {name: html_of(vera.get(f"{url}?path={name}")) for name in files}
    assert "<h1>Title</h1>" in shown["notes.md"]
    assert "&lt;script&gt;x&lt;/script&gt;" in shown["notes.md"]
    assert 'href="javascript' not in shown["notes.md"]
    assert "<img" not in shown["notes.md"].partition('id="preview"')[2].partition("</section>")[0]
    assert '<span class="k">def</span>' in shown["train.py"]
    assert "&lt;b&gt;" in shown["train.py"]
    assert '<span class="nt">"b"</span>' in shown["conf.json"]
    assert "<audio" in shown["beep.wav"]
    assert "data-chart>" in shown["charts/roc.json"]
    assert '"label": "\\u003C/script\\u003E"' in shown["charts/roc.json"]
    assert "one number more than" in text_of(vera.get(f"{url}?path=charts/bad.json"))
    results = vera.get(f"{url}/results")
    assert html_of(results).count("data-chart>") == 2
    assert "charts/bad.json: “edges” has one number more than “counts”." in text_of(results)
    for name in ("figure.json", "page.html"):
        (link,) = re.findall(r'<iframe class="artifact-page"[^>]*src="([^"]+)"', shown[name])
        page = vera.get(unescape(link), headers={"Sec-Fetch-Dest": "iframe"})
        policy = page["Content-Security-Policy"]
        assert "sandbox allow-scripts" in policy
        assert "allow-same-origin" not in policy
        assert "default-src 'none'" in policy
        script = f'<script src="{settings.SLIPWAY_URL}/static/npm/plotly.js-dist-min/'
        assert script in html_of(page)
        assert "cdn.plot.ly" not in html_of(page)
    assert "</script><b>" not in html_of(page)
    (link,) = re.findall(r'<iframe class="artifact-page"[^>]*src="([^"]+)"', shown["figure.json"])
    figure = vera.get(unescape(link))
    assert "\\u003c/script>\\u003cb>" in html_of(figure)
    alone = vera.get(unescape(link), headers={"Sec-Fetch-Dest": "document"})
    assert alone.status_code == 404


def test_event_files_of_tensorboard_are_read(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    vera, url = browse(people.vera), f"/p/vision/runs/{run.pk}"
    write(tmp_path, run, "tb/train/events.out.tfevents.1.host", CLASSIC)
    write(tmp_path, run, "tb/val/events.out.tfevents.2.host", V2[:-9])
    assert "Reading 2 event files" in text_of(vera.get(f"{url}/results"))
    values = vera.get(f"{url}/events").json()
    assert {(it["tag"], it["folder"]) for it in values["scalars"]} == {
        ("loss/train", "tb/train"),
        ("acc", "tb/train"),
        ("loss", "tb/val"),
    }
    assert values["damaged"] == 1
    assert values["unread"] == ""


def test_artifacts_of_runs_are_compared(
    people: Personas, browse: Browse, run: Run, tmp_path: Path
) -> None:
    vera = browse(people.vera)
    other = make_run(make_experiment(people.vision, "more"), "second")
    foreign = make_run(make_experiment(people.other), "foreign")
    changed = TABLE | {"data": [TABLE["data"][1], ["<b>ann</b>", 3, None], ["dora", 1, None]]}
    tag = json.dumps([{"path": "t.json", "type": "table"}])
    for it, table in ((run, TABLE), (other, changed), (foreign, TABLE)):
        Tag.objects.create(run=it, key="mlflow.loggedArtifacts", value=tag)
        write(tmp_path, it, "t.json", json.dumps(table).encode())
        for step in (1, 2):
            log_image(tmp_path, it, "cats", step)
        matrix = {"type": "confusion_matrix", "labels": ["a", "b"], "matrix": [[1, 0], [0, 1]]}
        write(tmp_path, it, "charts/confusion.json", json.dumps(matrix).encode())
        write(tmp_path, it, "plots/loss.png", png())
    write(tmp_path, run, "plots/alone.png", png())
    ids = "&".join(f"run={it.pk}" for it in (run, other, foreign))
    page = vera.get(f"/p/vision/compare/artifacts?{ids}")
    words = text_of(page)
    assert "Images: cats" in words
    assert html_of(page).count("data-gallery>") == 2
    assert "data-common-slider" in html_of(page)
    assert "Chart: confusion" in words
    assert html_of(page).count('class="result-chart"') == 2
    assert html_of(page).count('alt="plots/loss.png of ') == 2
    assert "alone.png" not in words
    assert "foreign" not in words
    assert f"/p/vision/compare/artifacts?run={run.pk}" in html_of(
        vera.get(f"/p/vision/compare?{ids}")
    )
    (link,) = re.findall(r'href="(/p/vision/compare/artifacts\?[^"]+table=t.json)"', html_of(page))
    by_place = text_of(vera.get(unescape(link)))
    assert "3 of 3 rows differ" in by_place
    by_name = vera.get(f"{unescape(link)}&tkey=name")
    assert "3 of 4 rows differ" in text_of(by_name)
    assert text_of(by_name).count("No such row.") == 2
    assert '<td class="cell-text cell-differs">3</td>' in html_of(by_name)
    assert ">bob<" not in html_of(by_name)
    missing = vera.get(f"/p/vision/compare/artifacts?{ids}&table=none.json")
    assert "Not all of these runs have this table." in text_of(missing)
