"""`%%slipway` in a real IPython: a cell becomes a job, and its log appears below."""

import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from slipway.cells import CellFailed
from slipway.schemas.training import JobIn
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server, wait_until
from tests.slipway.snapshots.folders import write_tree

CELL = "%%time\nimport os\nprint('rank', os.environ['RANK'])\n"


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        yield job_server


@pytest.fixture
def shell(
    server: TrainingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> InteractiveShell:
    """A shell in a folder of code, logged in to the server."""
    write_tree(tmp_path / "code", {"helpers.py": "x = 1\n", "report.ipynb": "{}"})
    monkeypatch.chdir(tmp_path / "code")
    monkeypatch.setenv("SLIPWAY_URL", server.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    monkeypatch.setenv("SLIPWAY_PROJECT", PROJECT)
    new_shell = InteractiveShell()
    assert new_shell.extension_manager.load_extension("slipway") is None
    return new_shell


def end(server: TrainingServer, state: str, **changes: str) -> threading.Thread:
    """End the job in the background, after two lines of its log."""

    def work() -> None:
        wait_until(lambda: "wl_1" in server.jobs)
        server.log(b"rank 0\n", rank=0)
        server.log(b"rank 1\n", rank=1)
        server.set(state=state, **changes)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def run(shell: InteractiveShell, line: str, cell: str = CELL) -> None:
    """Run a cell as a person does, and raise what it raises."""
    result = shell.run_cell(f"%%slipway {line}\n{cell}")
    result.raise_error()


def test_a_cell_becomes_a_job_and_its_log_appears(
    server: TrainingServer, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = end(server, "succeeded", explanation="Completed.")
    run(shell, "--nodes 1 --procs 2 --strategy ddp --pool gpu --param lr=0.1 --into job")
    thread.join()
    body = JobIn.model_validate(server.bodies[0])
    assert (body.procs, body.strategy, body.pool, body.name) == (2, "ddp", "gpu", "cell")
    assert body.params == {"lr": "0.1"}
    with tarfile.open(fileobj=io.BytesIO(server.snapshots[body.snapshot])) as archive:
        assert archive.getnames() == ["helpers.py", "report.ipynb", "slipway_cell.py"]
        script = archive.extractfile("slipway_cell.py")
        assert script is not None
        lines = script.read().decode().splitlines()
    assert lines[0].startswith("# %%slipway --nodes 1")
    assert lines[1:] == ["# %%time", *CELL.splitlines()[1:]]
    assert shell.user_ns["job"].workload.state == "succeeded"
    output = capsys.readouterr().out
    assert f"{server.url}/p/vision/jobs/wl_1" in output
    assert "[0] rank 0\n" in output
    assert "[1] rank 1\n" in output


def test_a_job_that_fails_stops_the_cells_after_it_with_a_short_reason(
    server: TrainingServer, shell: InteractiveShell
) -> None:
    thread = end(server, "failed", explanation="Exit status 1.", next_step="Read the log.")
    with pytest.raises(CellFailed, match="failed: Exit status 1") as caught:
        run(shell, "--no-code --procs 2")
    thread.join()
    (shown,) = caught.value._render_traceback_()
    assert shown.endswith("\nNext step: Read the log.")
    body = JobIn.model_validate(server.bodies[0])
    with tarfile.open(fileobj=io.BytesIO(server.snapshots[body.snapshot])) as archive:
        assert archive.getnames() == ["slipway_cell.py"]


def test_a_detached_cell_is_shown_later(
    server: TrainingServer, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, "--detach --into job")
    assert shell.user_ns["job"].workload.id == "wl_1"
    assert "Show it: %slipway wl_1" in capsys.readouterr().out
    thread = end(server, "succeeded")
    shell.run_cell("%slipway wl_1").raise_error()
    thread.join()
    assert "rank 0\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "cell", "reason"),
    [
        ("--nodes 0", CELL, "argument --nodes: 0 is not a whole number above 0"),
        ("--param lr", CELL, "argument --param: lr is not NAME=VALUE"),
        ("--colour red", CELL, "unrecognized arguments: --colour red"),
        ("--name 'a", CELL, "No closing quotation in its first line"),
        ("", "!pip install torch\n", "the command '!pip install torch', which only a notebook"),
        ("--code nowhere", CELL, "There is no folder nowhere"),
        ("--tier 'No Such'", CELL, "tier cannot be accepted"),
    ],
)
def test_what_cannot_run_is_refused_in_words(
    server: TrainingServer, shell: InteractiveShell, line: str, cell: str, reason: str
) -> None:
    with pytest.raises(CellFailed) as caught:
        run(shell, line, cell)
    assert reason in str(caught.value)
    assert not server.bodies


def test_help_is_shown(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "--help")
    assert "--strategy" in capsys.readouterr().out
    with pytest.raises(CellFailed):
        shell.run_cell("%slipway").raise_error()
