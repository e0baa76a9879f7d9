"""Build logs of the environment of a job, on a terminal or in a pipe."""

import sys
import time
from collections.abc import Iterator, Sequence

from slipway.cli.session import Session
from slipway.console import LogLines
from slipway.schemas.training import JobOut, LogPiece
from slipway.schemas.workloads import BuildOut, ReasonCode

# A node reports the end of a job and the last lines of its build in separate requests.
_LAST_LINES_WITHIN_S, _BETWEEN_S = 5.0, 0.3
_BUILDING, _FAILED = "building", "failed"


def builds_to_show(session: Session, job: JobOut, *, always: bool = False) -> Sequence[BuildOut]:
    """Return the builds that failed the job, or that it waits for, or all of them for `always`."""
    workload = job.workload
    if not workload.environment:
        return []
    has_failed = workload.reason == ReasonCode.ENVIRONMENT_FAILED
    if workload.state.is_final and not has_failed and not always:
        return []
    builds = session.client.jobs.builds(workload.id, project=workload.project)
    if always:
        return builds
    shown = {_FAILED} if has_failed and workload.state.is_final else {_BUILDING}
    if has_failed:
        shown.add(_FAILED)
    return [build for build in builds if build.state in shown]


def build_pieces(session: Session, job: JobOut, build: BuildOut) -> Iterator[bytes]:
    """Yield the log of a build of the job's environment."""
    workload = job.workload
    return session.client.jobs.build_log(workload.id, project=workload.project, node=build.node)


def show_builds(session: Session, job: JobOut, builds: Sequence[BuildOut]) -> None:
    """Write build logs, each under a line that names its node."""
    for build in builds:
        session.output.note(f"Build log of the environment on node {build.node} ({build.state}):")
        # Lines without colours: their readers search for names of packages.
        lines, offset = LogLines(ranks=1, colours=False), 0
        for data in build_pieces(session, job, build):
            _write(lines.complete_lines(LogPiece.of(attempt=1, rank=0, offset=offset, data=data)))
            offset += len(data)
        _write(lines.flush())


def show_failed_builds(session: Session, job: JobOut) -> None:
    """Write the build logs of a job that has just failed by them, once they are complete."""
    if job.workload.reason != ReasonCode.ENVIRONMENT_FAILED:
        return
    deadline = time.monotonic() + _LAST_LINES_WITHIN_S
    builds = builds_to_show(session, job)
    while not builds and time.monotonic() < deadline:
        time.sleep(_BETWEEN_S)
        builds = builds_to_show(session, job)
    show_builds(session, job, builds)


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
