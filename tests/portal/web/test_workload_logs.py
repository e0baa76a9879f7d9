"""Logs and use of resources on pages: ranges, search, plain text, downloads, the live stream."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from portal.core.clock import frozen
from portal.web.workloads import logs
from portal.web.workloads.log_stream import LogPoll, LogPosition, log_status, poll_log
from portal.web.workloads.logs import plain
from portal.web.workloads.views import logs as workload_logs
from portal.workloads.models import UsageSample, Workload
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, print_lines, run_job, use_store
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import after, finish, leases_of, make_machine, make_tier


def looked_at(place: LogPosition) -> tuple[bool, LogPoll]:
    """Look once, as a stream does; answers whether the job is over, too."""
    status = log_status(place)
    return status.has_ended, poll_log(place, status.log)


@pytest.fixture
def workload(people: Personas, settings: Settings, tmp_path: Path) -> Workload:
    """A job of two ranks that runs."""
    use_store(settings, tmp_path)
    make_machine("lab-1", cpus=2, gib=8)
    make_tier("small")
    return run_job(make_job(people.vision, people.bob, procs=2))


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;32mok\x1b[0m", "ok"),
        (" 10%\r 20%\r100%\nnext", "100%\nnext"),
        ("a\r\nb", "a\nb"),
        ("\x1b]0;title\x07text\x00\x08", "text"),
    ],
)
def test_a_log_without_scripts_is_what_a_terminal_shows_in_the_end(
    printed: str, shown: str
) -> None:
    assert plain(printed) == shown


def test_a_range_of_a_log_ends_with_whole_characters(
    people: Personas, browse: Browse, workload: Workload
) -> None:
    print_lines(workload, "größe\n", rank=1)
    address = f"/p/vision/workloads/{workload.pk}/log?rank=1"
    chunk = browse(people.vera).get(f"{address}&bytes=3").json()
    assert (chunk["start"], chunk["end"], chunk["text"]) == (0, 2, "gr")
    rest = browse(people.vera).get(f"{address}&start=2").json()
    assert (rest["text"], rest["end"], rest["size"]) == ("öße\n", 8, 8)


@pytest.mark.parametrize("query", ["rank=2", "attempt=7", "rank=9999999999"])
def test_a_rank_or_attempt_that_is_not_there_is_not_found(
    people: Personas, browse: Browse, workload: Workload, query: str
) -> None:
    for page in ("log", "log/download", "log/find"):
        answer = browse(people.vera).get(f"/p/vision/workloads/{workload.pk}/{page}?{query}&q=x")
        assert answer.status_code == 404


@pytest.mark.parametrize("query", ["rank=x", "start=-1", "attempt=1.5", f"start={'9' * 40}"])
def test_a_number_that_is_none_is_refused(
    people: Personas, browse: Browse, workload: Workload, query: str
) -> None:
    answer = browse(people.vera).get(f"/p/vision/workloads/{workload.pk}/log?{query}")
    assert answer.status_code == 422


def test_a_search_finds_lines_in_whatever_case_and_shows_them_as_text(
    people: Personas, browse: Browse, workload: Workload
) -> None:
    print_lines(workload, "first\n\x1b[31mLoss\x1b[0m <b>0.5</b>\nlast loss")
    address = f"/p/vision/workloads/{workload.pk}/log/find?q="
    page = browse(people.vera).get(f"{address}LOSS")
    assert "2 lines with “LOSS”" in text_of(page)
    assert "Loss &lt;b&gt;0.5&lt;/b&gt;" in html_of(page)
    assert 'data-log-at="6"' in html_of(page)
    assert "No line with “gain”" in text_of(browse(people.vera).get(f"{address}gain"))


def test_a_search_says_how_far_it_went(
    people: Personas, browse: Browse, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_lines(workload, "loss 1\n" * 10 + "gain 2\n")
    address = f"/p/vision/workloads/{workload.pk}/log/find?q="
    vera = browse(people.vera)
    assert "1 line with “gain”." in text_of(vera.get(f"{address}gain"))
    monkeypatch.setattr(logs, "MOST_SEARCHED_BYTES", 28)
    page = text_of(vera.get(f"{address}gain"))
    assert "No line with “gain” in the first 28 of 77 bytes. Download the log" in page
    monkeypatch.setattr(logs, "MOST_MATCHES", 2)
    page = text_of(vera.get(f"{address}loss"))
    assert "2 lines with “loss” in the first 13 of 77 bytes." in page


def test_a_download_is_the_log_byte_for_byte(
    people: Personas, browse: Browse, workload: Workload
) -> None:
    print_lines(workload, "\x1b[31mred\x1b[0m\r\n" * 50_000)
    answer: Any = browse(people.vera).get(f"/p/vision/workloads/{workload.pk}/log/download")
    assert b"".join(answer.streaming_content) == b"\x1b[31mred\x1b[0m\r\n" * 50_000
    assert f'filename="{workload.pk}-attempt1-rank0.log"' in answer.headers["Content-Disposition"]


def test_samples_are_told_for_each_node(
    people: Personas, browse: Browse, workload: Workload
) -> None:
    UsageSample.objects.create(
        lease=leases_of(workload)[0],
        measured_ms=1,
        at=after(0),
        cpu_percent=87.6543,
        memory_bytes=5,
    )
    usage = browse(people.vera).get(f"/p/vision/workloads/{workload.pk}/samples").json()
    assert [point[1:] for point in usage["tasks"][0]["points"]] == [[87.7, 5, None]]
    assert usage["cpu_limit_percent"] == 100
    assert usage["has_ended"] is False


def test_samples_that_a_chart_does_not_draw_are_counted(
    people: Personas, browse: Browse, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases_of(workload)[0]
    for second in range(5):
        UsageSample.objects.create(
            lease=lease, measured_ms=second, at=after(second), cpu_percent=second, memory_bytes=5
        )
    vera, address = browse(people.vera), f"/p/vision/workloads/{workload.pk}"
    assert vera.get(f"{address}/samples").json()["left_out"] == 0
    monkeypatch.setattr(workload_logs, "SAMPLES", 2)
    samples = vera.get(f"{address}/samples").json()
    assert [point[1] for point in samples["tasks"][0]["points"]] == [3, 4]
    assert samples["left_out"] == 3
    page = vera.get(f"/p/vision/jobs/{workload.pk}")
    assert 'id="usage-left-out"' in page.content.decode()


def test_a_stream_goes_on_from_a_byte_and_knows_when_the_log_is_complete(
    workload: Workload,
) -> None:
    print_lines(workload, "one\ntwo\n")
    _, look = looked_at(LogPosition(workload.pk, 1, 0, 4))
    assert look.piece is not None
    assert (look.piece.text, look.piece.end) == ("two\n", 8)
    assert not look.piece.is_complete
    finish(workload)
    with frozen(after(3600)):
        has_ended, look = looked_at(LogPosition(workload.pk, 1, 0, 8))
    assert has_ended
    assert look.piece is not None
    assert (look.piece.text, look.piece.is_complete) == ("", True)


def test_a_browser_far_behind_is_told_what_it_misses_and_shown_the_end(
    workload: Workload,
) -> None:
    size = 0
    for _ in range(6):
        size = print_lines(workload, "x" * (1024 * 1024 - 1) + "\n", offset=size)
    place = LogPosition(workload.pk, 1, 0, 10)
    _, look = looked_at(place)
    assert look.gap is not None
    assert look.piece is not None
    assert look.gap[0] == 10
    assert look.gap[1] == look.piece.start
    assert look.piece.end == size


def test_a_page_that_asks_for_the_end_starts_shortly_before_it(workload: Workload) -> None:
    size = print_lines(workload, "line\n" * 100_000)
    _, look = looked_at(LogPosition(workload.pk, 1, 0, None))
    assert look.gap is None
    assert look.piece is not None
    assert 0 < size - look.piece.start <= 64 * 1024
    assert look.piece.end == size
