"""The pages of notebook files: history, what differs, restore, branch, verify, run as job."""

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from portal.compute.services.pools import create_pool
from portal.notebooks.models import NotebookRun
from portal.training.models import Job
from portal.training.wiring import JOB
from portal.web.notebooks.presenters import files as notebook_files
from portal.workloads.ports import register_kind
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import UPLOAD, code, notebook, send, words
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import make_machine, make_tier

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FIRST = notebook(
    words("# <script>alert(1)</script>"),
    code("rate = 0.1\nkind = 'small'", count=1, tags=["parameters"]),
    code("print(rate)", count=2, prints="0.1\n"),
)
_DRAWN = code("draw()", count=3)
_DRAWN["outputs"] = [
    {
        "output_type": "display_data",
        "metadata": {},
        "data": {"image/png": PIXEL, "text/html": ["<script>steal()</script>"]},
    }
]
SECOND = notebook(
    words("# <script>alert(1)</script>"),
    code("rate = 0.1\nkind = 'small'", count=1, tags=["parameters"]),
    code("print(rate * 2)", count=2, prints="0.2\n"),
    _DRAWN,
)


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    settings.DATA_DIR = tmp_path
    register_kind(JOB)


@pytest.fixture
def browser(people: Personas) -> Client:
    made = Client()
    made.force_login(people.bob)
    return made


@pytest.fixture
def at(people: Personas) -> str:
    """The address of a notebook with two versions."""
    bob = Api.of(people.bob)
    send(bob, "a/churn.ipynb", FIRST)
    saved = json_of(send(bob, "a/churn.ipynb", SECOND))
    return f"/p/vision/notebooks/files/{saved['id']}"


def test_an_empty_project_says_how_to_begin(browser: Client) -> None:
    page = browser.get("/p/vision/notebooks/files").content.decode()
    assert "No notebooks yet" in page
    assert "slipway notebook save" in page


def test_versions_are_listed_compared_brought_back_and_branched(
    browser: Client, at: str, people: Personas
) -> None:
    listed = browser.get("/p/vision/notebooks/files").content.decode()
    assert "a/churn.ipynb" in listed
    assert "Not verified" in listed
    page = browser.get(at).content.decode()
    assert "Restore version 1" in page
    assert "Restore version 2" not in page
    differs = browser.get(f"{at}/diff?from=1&to=2").content.decode()
    assert "Version 1 → 2" in differs
    assert "2 of 4 cells differ" in differs
    assert '<span class="diff-removed">- print(rate)' in differs
    assert '<span class="diff-added">+ print(rate * 2)' in differs
    assert '<span class="diff-added">+ 0.2' in differs
    assert f"data:image/png;base64,{PIXEL}" in differs
    assert "<script>alert" not in differs
    assert "steal" not in differs
    back = browser.post(f"{at}/restore", {"version": "1"}, follow=True).content.decode()
    assert "Restored as version 3." in back
    assert "version 1 restored" in back
    assert browser.get(f"{at}/download?version=3").content == FIRST
    form = browser.get(f"{at}/branch?version=2").content.decode()
    assert "a/churn-branch.ipynb" in form
    refused = browser.post(f"{at}/branch", {"version": "2", "path": "a/churn.ipynb"})
    assert refused.status_code == 422
    assert "A notebook a/churn.ipynb already exists." in refused.content.decode()
    made = browser.post(f"{at}/branch", {"version": "2", "path": "b.ipynb"}, follow=True)
    assert "branch of a/churn.ipynb, version 2" in made.content.decode()


def test_cells_are_rendered_and_harmless(browser: Client, people: Personas) -> None:
    text = words(
        "# Churn\n\n| a | b |\n|---|---|\n| 1 | **2** |\n\n![p](attachment:p.png)"
        " ![t](https://evil.example/t.png) [x](javascript:alert(1)) [y](/settings/tokens)"
        " [z](https://example.org)\n\n<img src=x onerror=alert(2)> <b id=shell style='top:0'>b</b>"
        "<script>alert(3)</script>\n\n```python\nimport os\n```"
    )
    text["attachments"] = {"p.png": {"image/png": PIXEL}}
    table = "<style>th{top:0}</style><table border=1><tr><th onclick=x()>rate</th></tr></table>"
    shown = code("%%bash\necho '</pre><script>alert(4)</script>'", count=1)
    shown["outputs"] = [
        {"output_type": "execute_result", "data": {"text/html": [table], "text/plain": "plain"}},
        {"output_type": "stream", "name": "stderr", "text": "</pre><script>alert(5)</script>"},
        {"output_type": "display_data", "data": {"image/svg+xml": "<svg onload='alert(6)'/>"}},
        {"output_type": "error", "ename": "E", "traceback": ["\x1b[31mKeyError\x1b[0m: 'rate'"]},
    ]
    saved = json_of(send(Api.of(people.bob), "seen.ipynb", notebook(text, shown)))
    page = browser.get(f"/p/vision/notebooks/files/{saved['id']}").content.decode()
    cells = page.partition('id="cells-title"')[2]
    assert "<h1>Churn</h1>" in cells
    assert "<strong>2</strong></td>" in cells
    assert f'src="data:image/png;base64,{PIXEL}"' in cells
    assert '<span class="kn">import</span>' in cells
    assert 'href="https://example.org" rel="noopener noreferrer nofollow"' in cells
    assert "<th>rate</th>" in cells
    assert "plain" not in cells
    assert "data:image/svg+xml;base64," in cells
    assert "KeyError: &#x27;rate&#x27;" in cells
    assert "&lt;/pre&gt;&lt;script&gt;alert(5)" in cells
    for hostile in ("evil.example", '="javascript:', "/settings/tokens", "onerror", "onclick"):
        assert hostile not in cells, hostile
    for hostile in ("<script>alert", "id=", "style", "<svg"):
        assert hostile not in cells.partition("Churn")[2].partition("</section>")[0], hostile


def test_nonsense_in_the_address_is_told_in_words(browser: Client, at: str) -> None:
    for query in ("?to=99", "?to=x", "?from=0", "?to=٣", "?to=99999999999999999999"):
        answer = browser.get(f"{at}/diff{query}")
        assert answer.status_code == 422, query
    assert browser.get("/p/vision/notebooks/files/nb_none").status_code == 404


def test_who_may_not_sees_no_button_and_reaches_nothing(at: str, people: Personas) -> None:
    viewer, stranger = Client(), Client()
    viewer.force_login(people.vera)
    stranger.force_login(people.charlie)
    page = viewer.get(at).content.decode()
    assert "Verify</button>" not in page
    assert "Restore" not in page
    assert viewer.post(f"{at}/verify").status_code == 403
    assert viewer.post(f"{at}/restore", {"version": "1"}).status_code == 403
    assert stranger.get(at).status_code == 404
    assert stranger.get(f"{at}/diff").status_code == 404


def test_a_run_is_filled_in_priced_and_started(browser: Client, at: str) -> None:
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    page = browser.get(f"{at}/run").content.decode()
    assert "rate=0.1\nkind=small" in page
    assert "an hour" in page
    quote = browser.post(f"{at}/quote", {"tier": "small", "max_hours": "2"}).content.decode()
    assert "At most $7.20" in quote
    wrong = browser.post(f"{at}/run", {"tier": "small", "params": "no pair"})
    assert wrong.status_code == 422
    assert "must have the form name=value" in wrong.content.decode()
    gone = browser.post(f"{at}/run", {"tier": "none", "params": ""})
    assert "There is no tier none." in gone.content.decode()
    done = browser.post(f"{at}/run", {"tier": "small", "params": "rate=0.5\nkind=big"})
    assert done.status_code == 302
    run = NotebookRun.objects.get()
    assert run.params == {"rate": "0.5", "kind": "big"}
    assert Job.objects.get(pk=run.pk).script == "a/churn.ipynb"
    job = browser.get(done.headers["Location"]).content.decode()
    assert "Output notebook" in job
    shown = browser.get(f"/p/vision/notebooks/runs/{run.pk}").content.decode()
    assert "It appears here while the job runs." in shown


def test_a_run_is_sent_to_a_pool(browser: Client, at: str) -> None:
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    assert 'name="pool"' not in browser.get(f"{at}/run").content.decode()
    create_pool(name="twin", engine="local", settings={"places": 2}, price_percent=50)
    page = browser.get(f"{at}/run").content.decode()
    assert "twin · Local processes" in page
    fields = {"tier": "small", "params": "", "pool": "twin", "max_hours": "2"}
    quote = text_of(browser.post(f"{at}/quote", fields))
    assert "At most $3.60" in quote
    gone = browser.post(f"{at}/run", fields | {"pool": "none"})
    assert gone.status_code == 422
    assert "There is no pool none" in gone.content.decode()
    assert browser.post(f"{at}/run", fields).status_code == 302
    pool = NotebookRun.objects.get().workload.pool
    assert pool is not None
    assert pool.name == "twin"


def test_runs_beyond_the_newest_are_counted(
    browser: Client, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    for _ in range(3):
        assert browser.post(f"{at}/run", {"tier": "small", "params": ""}).status_code == 302
    assert "earlier run" not in text_of(browser.get(at))
    monkeypatch.setattr(notebook_files, "RUNS_SHOWN", 1)
    assert "2 more earlier runs: show all" in text_of(browser.get(at))


def test_what_a_job_sends_is_shown_on_its_page(browser: Client, at: str) -> None:
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    assert browser.post(f"{at}/verify").status_code == 302
    waiting = browser.get(at).content.decode()
    assert "Verifying" in waiting
    run = NotebookRun.objects.select_related("workload").get()
    workload = run.workload
    workload.epoch, workload.state = 1, "running"
    workload.save(update_fields=["epoch", "state"])
    job = Api(token_of(workload.pk, 1))
    place = f"projects/vision/notebook-runs/{run.pk}"
    sent = job.call("PUT", f"{place}/output?path=a/churn.ipynb", SECOND, content_type=UPLOAD)
    assert sent.status_code == 200, sent.content
    finding = {
        "kind": "hidden_state",
        "cell": 3,
        "is_problem": True,
        "message": "Cell 3 uses <b>x</b>, which no cell above it makes.",
        "next_step": "Write it again.",
    }
    report = {"passed": False, "code_cells": 3, "ran": 2, "duration_s": 1.5, "findings": [finding]}
    report["findings_left_out"] = 7
    assert job.put(f"{place}/report", report).status_code == 200
    assert job.put(f"{place}/report", report).status_code == 200
    assert job.put(f"{place}/report", report | {"passed": True}).status_code == 409
    page = browser.get(at).content.decode()
    assert "Not reproducible" in page
    assert "7 more findings not shown here." in page
    assert "Cell 3 uses &lt;b&gt;x" in page
    answer = browser.get(f"/p/vision/notebooks/runs/{run.pk}")
    assert "print ( rate * 2 )" in text_of(answer)
    output = answer.content.decode()
    assert f"data:image/png;base64,{PIXEL}" in output
    assert "<script>alert" not in output
    file = browser.get(f"/p/vision/notebooks/runs/{run.pk}/output")
    assert file.content == SECOND
    assert file.headers["Content-Disposition"].startswith("attachment")


def test_a_member_looks_at_anothers_notebook_and_an_outsider_sees_nothing(
    at: str, people: Personas
) -> None:
    vera, charlie = Client(), Client()
    vera.force_login(people.vera)
    charlie.force_login(people.charlie)
    answer = vera.get(at)
    assert "print ( rate * 2 )" in text_of(answer)
    page = answer.content.decode()
    assert f"data:image/png;base64,{PIXEL}" in page
    assert "alert(1)" not in page
    assert "<script>steal" not in page
    for change in ("Verify", "Run as job", "Restore", "Branch"):
        assert f">{change}<" not in page
    assert vera.post(f"{at}/verify").status_code == 403
    assert charlie.get(at).status_code == 404
    assert charlie.get("/p/vision/notebooks/files").status_code == 404
