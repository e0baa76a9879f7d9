"""Following a job on a real server that breaks: no byte lost, none twice, all of it in time."""

import random
import threading
import time
from collections.abc import Iterator

import pytest

import slipway
from slipway import errors
from slipway.schemas.training import JobProgress, LogPiece, SampleOut
from tests.slipway.jobserver import PROJECT, Fault, TrainingServer, training_server, wait_until
from tests.turns import thorough_after

QUICK = slipway.Retries(attempts=2, first_wait_s=0.01)
TEXT = "".join(f"line {number} é 数 \x1b[31m\n" for number in range(3000)).encode()


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        yield job_server


@pytest.fixture
def client(server: TrainingServer) -> Iterator[slipway.Client]:
    with slipway.Client(server.url, "slp_x", retries=QUICK) as new_client:
        yield new_client


def logs_in(news: list[object]) -> dict[tuple[int, int], bytes]:
    """Join the pieces of each log; fails on a gap, an overlap or a repetition."""
    logs: dict[tuple[int, int], bytes] = {}
    for piece in news:
        if isinstance(piece, LogPiece):
            before = logs.setdefault((piece.attempt, piece.rank), b"")
            assert piece.offset == len(before)
            logs[piece.attempt, piece.rank] = before + piece.data
    return logs


def test_a_job_is_told_from_beginning_to_end(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job(procs=2)
    server.log(TEXT, rank=0)
    server.log(TEXT[::-1], rank=1)  # no UTF-8
    server.log(b"again\n", rank=0, attempt=2)
    server.sample(cpu_percent=97.5)
    server.set(state="succeeded", explanation="done", step=12)
    news = list(client.jobs.follow("wl_1", project=PROJECT))
    assert logs_in(list(news)) == {(1, 0): TEXT, (1, 1): TEXT[::-1], (2, 0): b"again\n"}
    states = [item for item in news if isinstance(item, JobProgress)]
    assert [(state.workload.state, state.step) for state in states] == [("succeeded", 12)]
    assert [item.cpu_percent for item in news if isinstance(item, SampleOut)] == [97.5]


def test_what_happens_arrives_when_it_happens(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    moments: list[float] = []

    def live() -> None:
        for number in range(20):
            time.sleep(0.02)
            moments.append(time.monotonic())
            server.log(f"{number}\n".encode())
        server.set(state="succeeded")

    writer = threading.Thread(target=live)
    writer.start()
    delays = []
    for item in client.jobs.follow("wl_1", project=PROJECT):
        if isinstance(item, LogPiece):
            number = int(item.data.split()[-1])
            delays.append(time.monotonic() - moments[number])
    writer.join()
    assert delays
    assert sorted(delays)[len(delays) // 2] < 0.5


@pytest.mark.parametrize("seed", thorough_after(1, range(6)))
def test_no_byte_is_lost_or_doubled_whatever_breaks(
    server: TrainingServer, client: slipway.Client, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311
    server.add_job(procs=2)
    server.piece_bytes = dice.choice([1000, 4099, 65_536])
    for rank in (0, 1):
        server.log(TEXT, rank=rank)
    server.follow_faults = [
        dice.choice(
            [
                Fault(cut_after_bytes=dice.randrange(0, 200_000)),
                Fault(cut_after_bytes=dice.randrange(1000, 50_000), ignores_last_id=True),
                Fault(close_after_events=dice.randrange(1, 5)),
                Fault(close_after_events=3, skips_bytes=dice.randrange(1, 5000)),
                Fault(status=503),
                Fault(status=500),
            ]
        )
        for _ in range(8)
    ]
    server.log_faults = [Fault(cut_after_bytes=10), Fault(status=502)]
    server.set(state="failed", explanation="exit 1")
    troubles: list[str] = []
    news = list(
        client.jobs.follow(
            "wl_1", project=PROJECT, trouble=lambda error, _: troubles.append(error.message)
        )
    )
    assert logs_in(list(news)) == {(1, 0): TEXT, (1, 1): TEXT}
    assert troubles


def test_a_server_that_restarts_is_come_back_to(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    server.log(b"before\n")
    server.follow_faults = [Fault(cut_after_bytes=10_000), *[Fault(status=503)] * 4]
    news = client.jobs.follow("wl_1", project=PROJECT)
    assert isinstance(next(news), JobProgress)
    assert isinstance(next(news), LogPiece)
    with server.changed:
        server.jobs["wl_1"].logs[1, 0] += b"x" * 20_000
        server.changed.notify_all()
    server.set(state="succeeded")
    assert len(b"".join(item.data for item in news if isinstance(item, LogPiece))) == 20_000


def test_one_rank_can_be_followed_and_the_log_left_out(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job(procs=2)
    server.log(b"zero\n", rank=0)
    server.log(b"one\n", rank=1)
    server.set(state="succeeded")
    only_one = list(client.jobs.follow("wl_1", project=PROJECT, rank=1, attempt=1))
    assert logs_in(list(only_one)) == {(1, 1): b"one\n"}
    silent = list(client.jobs.follow("wl_1", project=PROJECT, logs=False))
    assert [type(item) for item in silent] == [JobProgress]


def test_what_a_bounded_log_has_lost_is_not_waited_for(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    server.log(TEXT)
    server.log_offset = 5000
    server.follow_faults = [Fault(skips_bytes=6000)]
    server.set(state="succeeded")
    pieces = [i for i in client.jobs.follow("wl_1", project=PROJECT) if isinstance(i, LogPiece)]
    assert pieces[0].offset == 5000
    assert b"".join(piece.data for piece in pieces) == TEXT[5000:]


def test_a_last_word_that_never_comes_is_not_waited_for(
    server: TrainingServer, client: slipway.Client
) -> None:
    job = server.add_job()
    job.is_told = False
    server.log(b"x\n")
    server.set(state="lost")
    news = list(client.jobs.follow("wl_1", project=PROJECT))
    assert logs_in(list(news)) == {(1, 0): b"x\n"}


def test_after_the_patience_the_error_is_raised(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    server.follow_faults = [Fault(status=503)] * 100
    with pytest.raises(errors.Unavailable):
        list(client.jobs.follow("wl_1", project=PROJECT, patience_s=0.5))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, errors.Unauthenticated), (403, errors.Forbidden), (404, errors.NotFound)],
)
def test_what_will_not_pass_is_raised_at_once(
    server: TrainingServer, client: slipway.Client, status: int, kind: type[errors.SlipwayError]
) -> None:
    server.add_job()
    server.follow_faults = [Fault(cut_after_bytes=2000), Fault(status=status)]
    server.log(TEXT)
    with pytest.raises(kind):
        list(client.jobs.follow("wl_1", project=PROJECT))


def test_an_answer_that_is_no_stream_is_told(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    server.answers[f"projects/{PROJECT}/jobs/wl_1/follow"] = {"hello": "proxy"}
    with pytest.raises(errors.UnexpectedAnswer, match="stream of events"):
        list(client.jobs.follow("wl_1", project=PROJECT))


def test_leaving_early_closes_the_connection(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    news = client.jobs.follow("wl_1", project=PROJECT)
    next(news)
    news.close()  # type: ignore[attr-defined]
    assert client.jobs.get("wl_1", project=PROJECT).workload.id == "wl_1"


def test_a_log_is_read_in_parts_and_goes_on_where_it_broke(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    content = bytes(range(256)) * 40_000  # more than one answer holds
    server.log(content)
    server.log_faults = [Fault(cut_after_bytes=100_000), Fault(), Fault(cut_after_bytes=0)]
    assert b"".join(client.jobs.logs("wl_1", project=PROJECT)) == content
    assert (
        b"".join(client.jobs.logs("wl_1", project=PROJECT, offset=10, limit=20)) == content[10:30]
    )
    assert b"".join(client.jobs.logs("wl_1", project=PROJECT, rank=7)) == b""
    server.log_faults = [Fault(cut_after_bytes=0)] * 20
    with pytest.raises(errors.ConnectionFailed):
        list(client.jobs.logs("wl_1", project=PROJECT))


def test_waiting_ends_with_the_job_or_the_time(
    server: TrainingServer, client: slipway.Client
) -> None:
    server.add_job()
    with pytest.raises(TimeoutError, match=r"queued after 0\.3 s: waits for a free node"):
        client.jobs.wait("wl_1", project=PROJECT, timeout_s=0.3)

    def end_it() -> None:
        wait_until(lambda: len(server.requests) > 4)
        server.set(state="failed", reason="oom")

    ender = threading.Thread(target=end_it)
    ender.start()
    ended = client.jobs.wait("wl_1", project=PROJECT, timeout_s=20)
    ender.join()
    assert ended.workload.reason == "oom"
