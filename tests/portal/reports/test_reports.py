"""Reports: created, edited, versioned, shared and exported, with the objects of their project."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from PIL import Image
from pytest_django import Settings

from portal.accounts.models import AuditEvent, Project
from portal.core import clock
from portal.experiments.models import Run
from portal.experiments.services.deletion import delete_runs
from portal.reports.models import Report, ReportVersion
from slipway.schemas.accounts import Scope
from tests.personas import Api, Personas, json_of
from tests.portal.experiments.test_runs_api import write
from tests.portal.experiments.world import log_curve, make_experiment, make_run
from tests.portal.web.conftest import Browse, browse
from tests.portal.web.reading import html_of, text_of

__all__ = ["browse"]
HOSTILE = "<script>alert(1)</script>"
REPORTS = "projects/vision/reports"


@pytest.fixture(autouse=True)
def _place(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = tmp_path.as_uri()


@pytest.fixture
def run(people: Personas, tmp_path: Path) -> Run:
    """A run of vision with a curve, a parameter and an image."""
    made = make_run(make_experiment(people.vision), "calm owl", params={"lr": "0.1"})
    log_curve(made, "loss", [1.0, 0.5, 0.25])
    image = io.BytesIO()
    Image.new("RGB", (8, 4), "red").save(image, "PNG")
    write(tmp_path, made, "plots/red.png", image.getvalue())
    write(tmp_path, made, "notes.txt", b"hello")
    return made


@pytest.fixture
def foreign(people: Personas, tmp_path: Path) -> Run:
    """A run of another project with everything that a report shows."""
    made = make_run(
        make_experiment(people.other), "foreign name", params={"secret": "foreign value"}
    )
    log_curve(made, "loss", [987.0, 986.0])
    write(tmp_path, made, "plots/red.png", b"\x89PNG\r\n\x1a\n foreign bytes")
    return made


def blocks_of(run: Run) -> list[dict[str, Any]]:
    """Return a block of each kind."""
    return [
        {"kind": "text", "text": f"# Findings\n\n**bold** {HOSTILE} [x](javascript:alert(1))"},
        {"kind": "chart", "runs": [run.pk], "metrics": ["loss"], "caption": "Falls."},
        {"kind": "runs", "filter": "params.lr = '0.1'", "columns": ["metrics.loss"]},
        {"kind": "run", "run": run.pk},
        {"kind": "artifact", "run": run.pk, "path": "plots/red.png"},
        {"kind": "artifact", "run": run.pk, "path": "notes.txt"},
        {"kind": "model_version", "model": "no-such", "version": 1},
        {"kind": "endpoint", "endpoint": "no-such"},
    ]


def create(people: Personas, blocks: list[dict[str, Any]], title: str = "Findings") -> Any:
    """Create a report of Bob's in vision."""
    made = Api.of(people.bob).post(REPORTS, {"title": title, "blocks": blocks})
    assert made.status_code == 201, made.content
    return json_of(made)


def test_a_report_shows_its_objects_as_they_are_when_it_is_opened(
    people: Personas, browse: Browse, run: Run
) -> None:
    report = create(people, blocks_of(run))
    vera = browse(people.vera)
    page = vera.get(f"/p/vision/reports/{report['id']}")
    html, words = html_of(page), text_of(page)
    assert "<strong>bold</strong>" in html
    assert "<script>alert" not in html
    assert 'href="javascript' not in html
    assert "<polyline" in html
    assert "Falls." in words
    assert f'href="/p/vision/runs/{run.pk}"' in html
    assert f"/p/vision/runs/{run.pk}/media?path=plots%2Fred.png" in html
    assert "This model version no longer exists." in words
    assert "This endpoint no longer exists." in words
    assert "/edit" not in html
    delete_runs(project=people.vision, run_ids=[run.pk])
    gone = text_of(vera.get(f"/p/vision/reports/{report['id']}"))
    assert "The runs of this chart no longer exist." in gone
    assert "No runs match." in gone
    assert "This run no longer exists." in gone
    assert "This file or its run no longer exists." in gone
    assert "Findings" in text_of(vera.get("/p/vision/reports?q=find"))
    assert browse(people.charlie).get(f"/p/vision/reports/{report['id']}").status_code == 404
    assert browse(people.charlie).get(f"/p/other/reports/{report['id']}").status_code == 404


def test_every_save_is_a_version_and_two_editors_do_not_overwrite_each_other(
    people: Personas, run: Run
) -> None:
    alice, bob = Api.of(people.alice), Api.of(people.bob)
    report = create(people, [{"kind": "text", "text": "one"}])
    path = f"{REPORTS}/{report['id']}"
    two = {"title": "Renamed", "blocks": [{"kind": "text", "text": "two"}], "version": 1}
    assert json_of(bob.put(path, two))["version"] == 2
    refused = alice.put(path, two)
    assert (refused.status_code, json_of(refused)["code"]) == (409, "report_changed")
    assert "Bob saved version 2 at " in json_of(refused)["detail"]
    listed = json_of(alice.get(f"{path}/versions"))["items"]
    assert [(it["number"], it["title"]) for it in listed] == [(2, "Renamed"), (1, "Findings")]
    assert json_of(alice.get(f"{path}/versions/1"))["blocks"] == report["blocks"]
    assert alice.get(f"{path}/versions/3").status_code == 404
    stale = alice.post(f"{path}/versions/1/restore", {"version": 1})
    assert stale.status_code == 409
    restored = json_of(alice.post(f"{path}/versions/1/restore", {"version": 2}))
    assert (restored["version"], restored["title"]) == (3, "Findings")
    assert restored["saved_by"]["email"] == people.alice.email
    assert Api.of(people.vera).put(path, two | {"version": 3}).status_code == 403
    assert alice.delete(path).status_code == 204
    assert alice.get(path).status_code == 404
    assert not ReportVersion.objects.exists()
    verbs = AuditEvent.objects.filter(target_kind="report").order_by("pk")
    assert list(verbs.values_list("verb", flat=True)) == [
        *("report.create", "report.change", "report.restore", "report.delete")
    ]


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([{"kind": "chart", "runs": [], "metrics": ["loss"]}], "blocks.0.chart.runs"),
        ([{"kind": "run", "run": "../../etc"}], "blocks.0.run.run"),
        ([{"kind": "iframe", "src": "http://e"}], "blocks.0"),
        ([{"kind": "text", "text": "x", "html": "y"}], "blocks.0.text.html"),
        ([{"kind": "text", "text": "a" * 20_001}], "blocks.0.text.text"),
        ([{"kind": "text", "text": "x"}] * 61, "blocks"),
        ([{"kind": "text", "text": "a" * 19_000}] * 11, "blocks"),
    ],
)
def test_bad_blocks_are_refused_and_named(
    people: Personas, blocks: list[dict[str, Any]], field: str
) -> None:
    refused = Api.of(people.bob).post(REPORTS, {"title": "Bad", "blocks": blocks})
    assert refused.status_code == 422
    assert json_of(refused)["field"] == field
    assert not Report.objects.exists()


def test_an_object_of_another_project_does_not_exist_in_a_report_page_link_or_export(
    people: Personas, browse: Browse, run: Run, foreign: Run
) -> None:
    blocks: list[dict[str, Any]] = [
        *({"kind": "run", "run": it} for it in (foreign.pk, "0" * 32)),
        *({"kind": "chart", "runs": [it], "metrics": ["loss"]} for it in (foreign.pk, "0" * 32)),
        *(
            {"kind": "artifact", "run": it, "path": "plots/red.png"}
            for it in (foreign.pk, "0" * 32)
        ),
        {"kind": "chart", "runs": [run.pk, foreign.pk], "metrics": ["loss"]},
        {"kind": "runs", "experiment": foreign.experiment_id},
        {"kind": "runs", "search": "foreign"},
    ]
    report = create(people, blocks)
    path = f"{REPORTS}/{report['id']}"
    link = json_of(Api.of(people.mia).post(f"{path}/share"))["link"]
    bob = browse(people.bob)
    answers = [
        bob.get(f"/p/vision/reports/{report['id']}"),
        # Charlie is a member of the other project, and sees it in the report as little.
        browse(people.charlie).get("/" + link.partition("//")[2].partition("/")[2]),
        Api.of(people.bob).get(f"{path}/export"),
    ]
    for answer in answers:
        assert answer.status_code == 200
        html = html_of(answer)
        assert "foreign name" not in html
        assert "foreign value" not in html
        assert "987" not in re.sub(r"[0-9a-f]{32}|rpt_\w+", "", html)
        words = text_of(answer)
        assert words.count("This run no longer exists.") == 2
        assert words.count("The runs of this chart no longer exist.") == 2
        assert words.count("This file or its run no longer exists.") == 2
        assert "1 run of this chart is not in this project." in words
        assert "No runs match." in words
    picked = bob.get("/p/vision/reports/pick?kind=run&q=name").json()
    assert picked == {"items": []}
    metrics = bob.get(f"/p/vision/reports/pick?kind=metric&run={foreign.pk}").json()
    assert metrics == {"items": []}
    files = bob.get(f"/p/vision/reports/pick?kind=artifact&run={foreign.pk}").json()
    assert files == {"items": []}


def test_a_share_link_opens_the_report_for_everybody_signed_in_and_nothing_else(
    people: Personas, browse: Browse, run: Run
) -> None:
    report = create(people, blocks_of(run))
    page = f"/p/vision/reports/{report['id']}"
    assert browse(people.bob).post(f"{page}/share").status_code == 403
    shown = html_of(browse(people.mia).post(f"{page}/share"))
    (address,) = re.findall(r'id="share-link">http://[^/]+(/shared/reports/[\w-]{40})<', shown)
    assert address.rpartition("/")[2] not in str(list(Report.objects.values()))
    charlie = browse(people.charlie)
    opened = charlie.get(address)
    html = html_of(opened)
    assert "Findings" in text_of(opened)
    assert 'src="data:image/png;base64,' in html
    assert "/p/vision" not in html
    assert opened.headers["Referrer-Policy"] == "no-referrer"
    assert charlie.get(page).status_code == 404
    assert charlie.get(f"/p/vision/runs/{run.pk}").status_code == 404
    assert Client().get(address).status_code == 302
    second = html_of(browse(people.mia).post(f"{page}/share"))
    assert charlie.get(address).status_code == 404
    (newer,) = re.findall(r"(/shared/reports/[\w-]{40})<", second)
    assert charlie.get(newer).status_code == 200
    Project.objects.filter(pk=people.vision.pk).update(archived_at=clock.now())
    assert charlie.get(newer).status_code == 404
    Project.objects.filter(pk=people.vision.pk).update(archived_at=None)
    browse(people.mia).post(f"{page}/unshare")
    assert charlie.get(newer).status_code == 404


@pytest.mark.thorough
def test_an_export_is_one_file_without_scripts_and_addresses(
    people: Personas, run: Run, tmp_path: Path
) -> None:
    write(tmp_path, run, "plots/fake.png", b"<svg onload=alert(1)>")
    blocks = [*blocks_of(run), {"kind": "artifact", "run": run.pk, "path": "plots/fake.png"}]
    report = create(people, blocks, title=f"On {HOSTILE}")
    path = f"{REPORTS}/{report['id']}/export"
    answer = Api.of(people.vera).get(path)
    html = html_of(answer)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "default-src 'none'" in html.partition("<title>")[0]
    assert "<script" not in html
    assert "onload=" not in html
    assert 'src="data:image/png;base64,' in html
    assert "<polyline" in html
    assert re.findall(r"(?:href|src)=\"(?!data:image/png)[^\"]*\"", html) == []
    assert "not a readable PNG" in text_of(answer)
    weak = Api.of(people.vera, scopes=[Scope.EXPERIMENTS_READ]).get(path)
    assert "This token cannot read endpoints." in text_of(weak)
    pdf = Api.of(people.vera).get(f"{path}?format=pdf")
    assert pdf.status_code == 200, pdf.content
    assert pdf.headers["Content-Type"] == "application/pdf"
    assert pdf.content.startswith(b"%PDF-")
    assert b"/Subtype /Image" in pdf.content
    assert b"/URI" not in pdf.content
    assert b"/JavaScript" not in pdf.content


def test_the_editor_keeps_what_was_typed_when_somebody_else_has_saved(
    people: Personas, browse: Browse, run: Run
) -> None:
    report = create(people, [{"kind": "text", "text": "one"}])
    page = f"/p/vision/reports/{report['id']}"
    alice, bob = browse(people.alice), browse(people.bob)
    typed = {"title": "Of Bob", "blocks": '[{"kind": "text", "text": "two"}]', "version": "1"}
    assert "<p>two</p>" in html_of(bob.post(f"{page}/edit", typed | {"preview": "1"}))
    assert bob.post(f"{page}/edit", typed).status_code == 302
    edited = typed | {"title": "Of Alice", "blocks": '[{"kind": "text", "text": "three"}]'}
    refused = alice.post(f"{page}/edit", edited)
    assert refused.status_code == 422
    assert "Bob saved version 2 at " in text_of(refused)
    assert "three" in html_of(refused)
    assert 'name="version" value="2"' in html_of(refused)
    assert alice.post(f"{page}/edit", edited | {"version": "2"}).status_code == 302
    bad = alice.post(f"{page}/edit", edited | {"version": "3", "blocks": '[{"kind": "chart"}]'})
    assert "Block 1 (chart, runs) field required." in text_of(bad)
    assert "This is not JSON" in text_of(alice.post(f"{page}/edit", edited | {"blocks": "[" * 9}))
    history = text_of(alice.get(f"{page}/versions"))
    assert "3 Of Alice" in history
    assert "Of Bob" in text_of(alice.get(f"{page}?version=2"))
    alice.post(f"{page}/restore", {"number": "1", "version": "3"})
    assert "one" in text_of(alice.get(page))
