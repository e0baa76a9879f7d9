"""Jobs followed live, by the SDK and by plain HTTP, at a real portal."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import slipway
from slipway import errors
from slipway.schemas.accounts import Role
from slipway.schemas.training import JobOut, JobProgress, LogPiece, SampleOut
from slipway.schemas.workloads import WorkloadState
from slipway.server_events import ServerEvent, read_events
from tests.live import LivePortal
from tests.portal.training.lab import Lab, client_of, threads_of
from tests.processes import wait_for
from tests.turns import thorough_after


@pytest.fixture(scope="module")
def lab(portal: LivePortal) -> Iterator[Lab]:
    made = Lab(portal)
    yield made
    made.end()


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with client_of(portal, "alice") as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> str:
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


@pytest.fixture
def job(alice: slipway.Client, lab: Lab, project: str, tmp_path: Path) -> JobOut:
    """A job of two ranks, queued."""
    (tmp_path / "train.py").write_text("print('hello')\n")
    return slipway.train(
        "train.py",
        folder=tmp_path,
        procs=2,
        tier=lab.tier,
        params={"lr": 0.1},
        project=project,
        client=alice,
    )


class Following:
    """Somebody who follows with the SDK, in a thread."""

    def __init__(self, client: slipway.Client, job: JobOut, **wish: Any) -> None:
        self.news: list[Any] = []
        self.error: errors.SlipwayError | None = None
        self._stream = client.jobs.follow(job.workload.id, project=job.workload.project, **wish)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for event in self._stream:
                self.news.append(event)
        except errors.SlipwayError as error:
            self.error = error

    def log(self, rank: int, attempt: int = 1) -> bytes:
        """What came of a log, which must come in order and once."""
        content = b""
        for event in list(self.news):
            if isinstance(event, LogPiece) and (event.rank, event.attempt) == (rank, attempt):
                assert event.offset == len(content)
                content += event.data
        return content

    @property
    def states(self) -> list[WorkloadState]:
        return [event.workload.state for event in list(self.news) if isinstance(event, JobProgress)]

    def ends(self, within_s: float = 10.0) -> None:
        self.thread.join(within_s)
        assert not self.thread.is_alive()


def events_of(answer: httpx.Response) -> Iterator[ServerEvent]:
    return read_events(answer.iter_raw())


def test_a_job_is_followed_from_submission_to_its_last_byte(
    alice: slipway.Client, lab: Lab, job: JobOut
) -> None:
    assert job.snapshot.files == 1
    following = Following(alice, job)
    wait_for(lambda: following.states == [WorkloadState.QUEUED], "the state at once", within_s=5)
    task = lab.place(job)
    assert b"print('hello')" in lab.fetch_code(task)
    lab.report(task, 1, "starting")
    lab.report(task, 2, "running", warm=True)
    line = "näher am Ziel €\n".encode() + b"\xff\x00\xe2\x82"
    lab.log(task, 0, line)
    sent_s = time.monotonic()
    wait_for(lambda: following.log(0) == line, "the line", within_s=5)
    assert time.monotonic() - sent_s < 3  # 1 s on a quiet machine
    lab.report(task, 3, "progress", step=1)
    lab.sample(task, 50)
    wait_for(lambda: any(isinstance(event, SampleOut) for event in following.news), "the sample")
    wait_for(
        lambda: any(isinstance(event, JobProgress) and event.step == 1 for event in following.news),
        "the step",
    )
    lab.report(task, 4, "ended", reason="completed", exit_code=0)
    wait_for(lambda: WorkloadState.SUCCEEDED in following.states, "the end")
    # The last lines come after the end of the task; nobody goes before they are told.
    lab.log(task, len(line), b"bye\n", end=True)
    lab.log(task, 0, b"rank 1", rank=1, end=True)
    following.ends()
    assert following.error is None
    assert following.log(0) == line + b"bye\n"
    assert following.log(1) == b"rank 1"
    last = [event for event in following.news if isinstance(event, JobProgress)][-1]
    assert (last.workload.state, last.step, last.log_ranks) == ("succeeded", 1, [0, 1])
    assert last.cost_nano_usd > 0
    assert last.first_step_after_s is not None
    again = Following(alice, job)
    again.ends()
    assert again.states == [WorkloadState.SUCCEEDED]
    assert again.log(0) == line + b"bye\n"


@pytest.mark.thorough
def test_who_comes_back_gets_what_follows_and_nothing_twice(
    alice: slipway.Client, lab: Lab, job: JobOut, portal: LivePortal
) -> None:
    task = lab.place(job)
    content = secrets.token_bytes(700_000)
    lab.report(task, 1, "running")
    lab.log(task, 0, content, end=True)
    lab.log(task, 0, b"one\n" * 100_000, rank=1, end=True)
    lab.report(task, 2, "ended", reason="completed")
    path = f"/api/v1/projects/{job.workload.project}/jobs/{job.workload.id}/follow"
    bearer = {"Authorization": f"Bearer {portal.tokens['alice']}"}
    whole: dict[tuple[int, int], bytes] = {}
    last_id, connections, over = "", 0, False
    with httpx.Client(base_url=portal.url, timeout=20) as http:
        while not over:
            connections += 1
            sent = bearer | ({"Last-Event-ID": last_id} if last_id else {})
            with http.stream("GET", path, headers=sent) as answer:
                assert answer.headers["Content-Type"] == "text/event-stream"
                for count, event in enumerate(events_of(answer)):
                    over = event.name == "end"
                    if event.name == "log":
                        piece = LogPiece.model_validate_json(event.data)
                        known = whole.get((piece.attempt, piece.rank), b"")
                        assert piece.offset == len(known)
                        whole[piece.attempt, piece.rank] = known + piece.data
                    last_id = event.id
                    if count == 2:
                        break
    assert connections > 2
    assert whole == {(1, 0): content, (1, 1): b"one\n" * 100_000}


@pytest.mark.thorough
def test_a_bookmark_that_is_none_begins_at_the_beginning(
    alice: slipway.Client, lab: Lab, job: JobOut
) -> None:
    task = lab.place(job)
    lab.report(task, 1, "running")
    lab.log(task, 0, b"hello", end=True)
    lab.log(task, 0, b"", rank=1, end=True)
    lab.report(task, 2, "ended", reason="completed")
    with httpx.Client(base_url=lab.portal.url, timeout=20) as http:
        for nonsense in ("", "x", "9" * 40, "1.2.3", "0.0.1-0--5", "\xff", "0" * 40_000):
            answer = http.get(
                f"/api/v1/projects/{job.workload.project}/jobs/{job.workload.id}/follow",
                headers=[
                    (b"Authorization", f"Bearer {lab.portal.tokens['alice']}".encode()),
                    (b"Last-Event-ID", nonsense.encode("latin1")),
                ],
            )
            if len(nonsense) > 30_000:
                assert answer.status_code in (200, 400, 431)
                continue
            events = list(read_events([answer.content]))
            assert [event.name for event in events] == ["state", "log", "end"], nonsense


def test_one_rank_or_no_log_at_all_can_be_followed(
    alice: slipway.Client, lab: Lab, job: JobOut
) -> None:
    task = lab.place(job)
    lab.report(task, 1, "running")
    lab.log(task, 0, b"zero", end=True)
    lab.log(task, 0, b"one", rank=1, end=True)
    only, none, later = (
        Following(alice, job, rank=1),
        Following(alice, job, logs=False),
        Following(alice, job, attempt=2),
    )
    wait_for(lambda: only.log(1) == b"one", "the log")
    lab.report(task, 2, "ended", reason="completed")
    for following in (only, none, later):
        following.ends()
    assert only.log(0) == none.log(1) == later.log(1) == b""
    assert none.states[-1] == WorkloadState.SUCCEEDED


def test_the_log_of_every_attempt_is_told(alice: slipway.Client, lab: Lab, job: JobOut) -> None:
    following = Following(alice, job)
    task = lab.place(job)
    lab.report(task, 1, "running")
    lab.log(task, 0, b"first", end=True)
    lab.log(task, 0, b"", rank=1, end=True)
    lab.report(task, 2, "ended", reason="signal")
    second = lab.place(job)
    assert second.epoch == 2
    lab.report(second, 1, "running")
    lab.log(second, 0, b"second", end=True)
    lab.log(second, 0, b"", rank=1, end=True)
    lab.report(second, 2, "ended", reason="completed")
    following.ends()
    assert (following.log(0), following.log(0, 2)) == (b"first", b"second")


@pytest.mark.parametrize("loses", thorough_after(1, ["membership", "token"]))
def test_who_may_not_see_the_job_any_more_is_cut_off_within_seconds(
    alice: slipway.Client, lab: Lab, job: JobOut, portal: LivePortal, loses: str
) -> None:
    project = job.workload.project
    with client_of(portal, "bob") as bob:
        invited = alice.invitations.create(portal.email("bob"), role=Role.VIEWER, project=project)
        bob.invitations.accept(invited.link.rstrip("/").rpartition("/")[2])
        made = bob.tokens.create("follow", scopes=["workloads:read"])
        with slipway.Client(portal.url, made.token) as reader:
            following = Following(reader, job)
            wait_for(lambda: following.states, "the state", within_s=5)
            if loses == "membership":
                alice.members.remove(bob.whoami().user.id, project=project)
            else:
                bob.tokens.revoke(made.id)
            taken_s = time.monotonic()
            following.ends(10)
            assert time.monotonic() - taken_s < 8  # 5 s on a quiet machine
            kind = errors.NotFound if loses == "membership" else errors.Unauthenticated
            assert isinstance(following.error, kind)


@pytest.mark.thorough
def test_a_flood_reaches_a_slow_reader_whole(alice: slipway.Client, lab: Lab, job: JobOut) -> None:
    task = lab.place(job)
    lab.report(task, 1, "running")
    content = b"".join(b"%09d\n" % number for number in range(3_000_000))
    following = Following(alice, job, rank=0)
    lab.log(task, 0, content, end=True)
    lab.log(task, 0, b"", rank=1, end=True)
    lab.report(task, 2, "ended", reason="completed")
    following.ends(60)
    assert following.error is None
    assert following.log(0) == content


@pytest.mark.thorough
def test_streams_cost_no_threads_and_more_than_one_person_needs_are_refused(
    alice: slipway.Client, lab: Lab, job: JobOut, portal: LivePortal
) -> None:
    path = f"/api/v1/projects/{job.workload.project}/jobs/{job.workload.id}/follow"
    bearer = {"Authorization": f"Bearer {portal.tokens['alice']}"}
    limits = httpx.Limits(max_connections=None)
    before = threads_of(portal)
    with httpx.Client(base_url=portal.url, headers=bearer, limits=limits, timeout=20) as http:
        answers, streams = [], []
        for _ in range(51):
            answers.append(http.send(http.build_request("GET", path), stream=True))
            if answers[-1].status_code == 200:
                streams.append(events_of(answers[-1]))
                next(streams[-1])
        assert [answer.status_code for answer in answers] == [200] * 50 + [429]
        assert threads_of(portal) - before < 20
        for answer in answers:
            answer.close()
        wait_for(lambda: _is_open(http, path), "a free seat")


def _is_open(http: httpx.Client, path: str) -> bool:
    with http.stream("GET", path) as answer:
        return answer.status_code == 200
